package reflector_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/reflector"
)

// The schema is compared before a resume and beside a watch. If it has changed, the objects are
// listed, and the schema of the list is the one to compare with from then on.
func TestSchemaChanged(t *testing.T) {
	type answered struct {
		schema string
		err    error
	}
	for name, x := range map[string]struct {
		stored  string
		answers []answered // the last one repeats
		lasts   time.Duration
		begun   int
		schema  string // of the newest list
		watches int
	}{
		"the same":              {"1", []answered{{"1", nil}}, time.Hour, 0, "", 1},
		"another, at the start": {"1", []answered{{"2", nil}}, time.Hour, 1, "2", 1},
		"not known before":      {"", []answered{{"2", nil}}, time.Hour, 1, "2", 1},
		"not known now":         {"1", []answered{{"", nil}}, time.Hour, 0, "", 1},
		"never known":           {"", []answered{{"", nil}}, time.Hour, 0, "", 1},
		"known again":           {"1", []answered{{"", nil}, {"1", nil}}, time.Hour, 0, "", 1},
		"changed, too soon":     {"1", []answered{{"1", nil}, {"2", nil}}, 9 * time.Minute, 0, "", 1},
		"changed":               {"1", []answered{{"1", nil}, {"2", nil}}, 16 * time.Minute, 1, "2", 2},
		"changed, later":        {"1", []answered{{"1", nil}, {"1", nil}, {"2", nil}}, 31 * time.Minute, 1, "2", 2},
		"can't be asked":        {"1", []answered{{"", errors.New("refused")}, {"1", nil}}, time.Hour, 0, "", 1},
		"can't, beside a watch": {"1", []answered{{"1", nil}, {"", errors.New("refused")}, {"1", nil}}, time.Hour, 0, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{}
			// Each watch stays up.
			s.watches = []answer{{open: true}, {events: []watch.Event{bookmark(110)}, open: true}}
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
			require.Equal(t, x.begun, has(log, "begin schema-changed uid:1 force=true"), "%q", log)
			require.Equal(t, x.begun, has(log, "begin"), "%q", log)
			require.Equal(t, x.schema, s.replace.Schema)
			require.Equal(t, x.watches, has(log, "watch"), "%q", log)
		})
	}
}
