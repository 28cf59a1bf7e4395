package selector

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// TestRecorded compares the selectors with the answers of a kube-apiserver, for every resource that it
// lists. Record them again with
//
//	go test ./test/e2e -run TestKubeAPISelectors -args -selectors.record
func TestRecorded(t *testing.T) {
	b, err := os.ReadFile("testdata/kube-apiserver.json")
	require.NoError(t, err)
	var recorded []struct {
		Info        store.Info
		Description store.Description
		Objects     []json.RawMessage
		Requests    []struct {
			LabelSelector, FieldSelector, Message string
			Keys                                  []string
		}
	}
	require.NoError(t, json.Unmarshal(b, &recorded))
	require.NotEmpty(t, recorded)
	for _, r := range recorded {
		f := FieldsOf(r.Info, r.Description)
		var keys []string
		var attributes []Attributes
		for _, raw := range r.Objects {
			o, err := object.Parse(raw)
			require.NoError(t, err)
			a, err := f.Of(o)
			require.NoError(t, err)
			values, err := f.Values(o)
			require.NoError(t, err)
			require.Equal(t, a.Values(), values)
			keys, attributes = append(keys, o.Key()), append(attributes, FromValues(a.Values()))
		}
		for _, request := range r.Requests {
			what := fmt.Sprintf("%s labelSelector=%q fieldSelector=%q", r.Info.GVR(), request.LabelSelector, request.FieldSelector)
			s, err := f.Parse(request.LabelSelector, request.FieldSelector)
			if request.Message != "" {
				require.EqualError(t, err, request.Message, what)
				continue
			}
			require.NoError(t, err, what)
			var selected []string
			for i, key := range keys {
				if s.Matches(key, attributes[i]) {
					selected = append(selected, key)
				}
			}
			require.Equal(t, request.Keys, selected, what)
		}
	}
}
