package discovery

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse makes the documents of a kube-apiserver from its aggregated ones, and compares them with its own.
func TestParse(t *testing.T) {
	server := readRecorded(t)
	aggregated := func(path string) []byte {
		raw, err := json.Marshal(server.Aggregated[path])
		require.NoError(t, err)
		return raw
	}
	d, err := Parse(aggregated("/api"), aggregated("/apis"))
	require.NoError(t, err)
	require.Greater(t, len(server.Legacy), 30)
	for path, want := range server.Legacy {
		for _, r := range objects(want["resources"]) {
			delete(r, "storageVersionHash")
		}
		var got map[string]any
		require.NoError(t, json.Unmarshal(get(t, d, path, "").Body.Bytes(), &got), path)
		delete(want, "serverAddressByClientCIDRs") // this server's
		delete(got, "serverAddressByClientCIDRs")
		require.Equal(t, want, got, path)
	}
	for _, path := range []string{"/api", "/apis"} {
		require.JSONEq(t, string(aggregated(path)), get(t, d, path, aggregatedType).Body.String(), path)
	}
}

func TestParse_Bad(t *testing.T) {
	good := []byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2beta1",` +
		`"items":[{"metadata":{},"versions":[{"version":"v1"}]}]}`)
	none := []byte(`{"kind":"APIGroupDiscoveryList","items":[]}`)
	_, err := Parse(good, none)
	require.NoError(t, err)
	for _, bad := range []string{
		"", "null", "[]", "<html>", `{"kind":"APIVersions","versions":["v1"]}`, string(none),
		`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{}}]}`,
	} {
		_, err := Parse([]byte(bad), none)
		require.Error(t, err, bad)
	}
	for _, bad := range []string{
		"", "null", `{"kind":"APIGroupList"}`, `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"x"}}]}`,
	} {
		_, err := Parse(good, []byte(bad))
		require.Error(t, err, bad)
	}
}
