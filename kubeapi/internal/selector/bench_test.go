package selector

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/snapcache/snapcache/object"
)

// recordedPod returns a pod as a kube-apiserver sends it.
func recordedPod(b *testing.B) *object.Object {
	b.Helper()
	recorded, err := os.ReadFile("testdata/kube-apiserver.json")
	require.NoError(b, err)
	raw := gjson.GetBytes(recorded, `#(info.id=="pods").objects.0`).Raw
	compact, err := json.Marshal(json.RawMessage(raw))
	require.NoError(b, err)
	o, err := object.Parse(compact)
	require.NoError(b, err)
	return o
}

func BenchmarkOf(b *testing.B) {
	o := recordedPod(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pods.Of(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValues(b *testing.B) {
	o := recordedPod(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pods.Values(o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMatches(b *testing.B) {
	s := parse(b, "app=web", "spec.nodeName=edge-1,status.phase!=Failed")
	a := Attributes{Labels: map[string]string{"app": "web"}, Fields: map[string]string{"spec.nodeName": "edge-1", "status.phase": "Running"}}
	b.ReportAllocs()
	for b.Loop() {
		if !s.Matches("shop/till", a) {
			b.Fatal("it does not match")
		}
	}
}
