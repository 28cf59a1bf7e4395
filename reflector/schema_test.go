package reflector_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/reflector"
	"github.com/snapcache/snapcache/store"
)

// The schema is compared before a resume and after a watch. If it has changed, the objects are
// listed, and the schema of the list is the one to compare with from then on.
func TestSchemaChanged(t *testing.T) {
	type answered struct {
		schema string
		err    error
	}
	refused := errors.New("refused")
	for _, x := range []struct {
		name    string
		stored  string
		answers []answered // the last one repeats
		lasts   time.Duration
		schema  string // of the list; empty for none
		watches int    // before the list
		probes  int
	}{
		{"the same", "1", []answered{{"1", nil}}, time.Hour, "", 0, 1},
		{"another, at the start", "1", []answered{{"2", nil}}, time.Hour, "2", 0, 1},
		{"not known before", "", []answered{{"2", nil}}, time.Hour, "2", 0, 1},
		{"not known now", "1", []answered{{"", nil}}, time.Hour, "", 0, 1},
		{"never known", "", []answered{{"", nil}}, time.Hour, "", 0, 1},
		{"known again", "1", []answered{{"", nil}, {"1", nil}}, time.Hour, "", 0, 1},
		{"changed, too soon", "1", []answered{{"1", nil}, {"2", nil}}, 4 * time.Minute, "", 0, 1},
		{"changed", "1", []answered{{"1", nil}, {"2", nil}}, 11 * time.Minute, "2", 1, 1},
		{"changed, later", "1", []answered{{"1", nil}, {"1", nil}, {"2", nil}}, 21 * time.Minute, "2", 2, 1},
		{"can't be asked", "1", []answered{{"", refused}, {"1", nil}}, time.Hour, "", 0, 2},
		{"can't, after a watch", "1", []answered{{"1", nil}, {"", refused}, {"1", nil}}, time.Hour, "", 0, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &script{}
			for range 20 {
				s.watches = append(s.watches, answer{events: []watch.Event{bookmark(100)}, lasts: full})
			}
			log := play(t, s, x.lasts, func(o *reflector.Options) {
				o.Checkpoint.Schema = x.stored
				o.Schema = func(context.Context) (string, error) {
					a := x.answers[0]
					if len(x.answers) > 1 {
						x.answers = x.answers[1:]
					}
					return a.schema, a.err
				}
			})
			require.Equal(t, x.schema, s.replace.Schema)
			begun := slices.Index(log, "begin schema-changed uid:1 force=true")
			require.Equal(t, x.schema != "", begun >= 0, "%q", log)
			require.LessOrEqual(t, has(log, "begin"), 1, "%q", log)
			require.Equal(t, x.probes, has(log, "probe"), "%q", log)
			if begun >= 0 {
				require.Equal(t, x.watches, has(log[:begun], "watch"), "%q", log)
			}
		})
	}
}

// TestSchemaChangedBeforeOtherList: a list for another reason takes an object with a known
// resourceVersion as unchanged. If the schema has changed, it is made as schema-changed.
func TestSchemaChangedBeforeOtherList(t *testing.T) {
	for _, x := range []struct {
		name, schema string
		reason       store.Reason
		want         string
	}{
		{"expired", "2", store.ReasonExpired, "begin schema-changed uid:1 force=true"},
		{"requested", "2", store.ReasonRequested, "begin schema-changed uid:1 force=true"},
		{"the same", "1", store.ReasonExpired, "begin expired uid:1 force=false"},
		{"not known now", "", store.ReasonExpired, "begin expired uid:1 force=false"},
		{"the first list", "2", store.ReasonInitial, "begin initial uid:1 force=false"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s := &script{watches: []answer{{lasts: full}}}
			log := play(t, s, time.Minute, func(o *reflector.Options) {
				o.Checkpoint.Schema, o.Reason = "1", x.reason
				o.Schema = func(context.Context) (string, error) { return x.schema, nil }
			})
			require.Equal(t, 1, has(log, "begin"), "%q", log)
			require.Equal(t, 1, has(log, x.want), "%q", log)
			require.Equal(t, x.schema, s.replace.Schema)
		})
	}
}
