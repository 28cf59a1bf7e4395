package e2e

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

var recordTables = flag.Bool("tables.record", false, "record the server's tables for the tests of kubeapi/internal/table")

// tableObjects are the objects of the recorded tables.
//
//go:embed testdata/tables
var tableObjects embed.FS

// recordedTable is a kube-apiserver's table of a resource, with whole objects.
type recordedTable struct {
	Info        store.Info        `json:"info"`
	Description store.Description `json:"description"`
	Now         time.Time         `json:"now"`
	Table       metav1.Table      `json:"table"`
}

// TestRecordedTables checks that the tables recorded for kubeapi/internal/table have the columns of
// this server, and a row of each of the objects. With -tables.record it records them.
func TestRecordedTables(t *testing.T) {
	t.Parallel()
	cp := harness.ControlPlane(t, controlplane.Options{})
	tables := serverTables(t, cp)
	root := harness.Root(t)
	dir := filepath.Join(root, "kubeapi", "internal", "table")
	file := filepath.Join(dir, "testdata", "tables.json.gz")
	if *recordTables {
		writeTables(t, file, tables)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "columns.json"), columnsFile(t, tables), 0o644))
		return
	}
	want := readTables(t, file)
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(tables)))
	for id, table := range tables {
		require.Equal(t, want[id].Table.ColumnDefinitions, table.Table.ColumnDefinitions, id)
		require.Len(t, table.Table.Rows, len(want[id].Table.Rows), id)
	}
}

// serverTables creates the objects and returns the tables of their resources.
func serverTables(t *testing.T, cp *controlplane.ControlPlane) map[string]recordedTable {
	t.Helper()
	config := cp.RESTConfig(controlplane.Admin)
	client := harness.Dynamic(t, config)
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)

	mappings := make(map[string]*meta.RESTMapping)
	created := make(map[types.UID]bool)
	columns := make(map[string][]store.Column)
	for _, o := range readObjects(t) {
		mapping := awaitMapping(t, mapper, o)
		id := mapping.Resource.GroupResource().String()
		mappings[id] = mapping
		namespace := ""
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace = cmp.Or(o.GetNamespace(), "default")
		}
		created[createInState(t, client.Resource(mapping.Resource).Namespace(namespace), o)] = true
		if o.GetKind() == "CustomResourceDefinition" {
			columns[o.GetName()] = printerColumns(t, o)
		}
	}
	tables := make(map[string]recordedTable)
	for id, m := range mappings {
		table := getTable(t, httpClient, config.Host, m, created)
		table.Description.Columns, table.Description.Custom = columns[id]
		tables[id] = table
	}
	return tables
}

func readObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	files, err := tableObjects.ReadDir("testdata/tables")
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	for _, file := range files {
		raw, err := tableObjects.ReadFile("testdata/tables/" + file.Name())
		require.NoError(t, err)
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
		for {
			o := new(unstructured.Unstructured)
			err := decoder.Decode(&o.Object)
			if err == io.EOF {
				break
			}
			require.NoError(t, err, file.Name())
			objects = append(objects, o)
		}
	}
	require.NotEmpty(t, objects)
	return objects
}

// awaitMapping returns the resource of an object. That of a custom resource is served some time after
// its definition was created.
func awaitMapping(t *testing.T, mapper *restmapper.DeferredDiscoveryRESTMapper, o *unstructured.Unstructured) *meta.RESTMapping {
	t.Helper()
	var mapping *meta.RESTMapping
	require.Eventually(t, func() bool {
		gvk := o.GroupVersionKind()
		var err error
		if mapping, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			mapper.Reset()
		}
		return err == nil
	}, patience, pollEvery, "%s", o.GroupVersionKind())
	return mapping
}

// createInState creates an object with its status and, if it has a deletionTimestamp, deletes it. It
// returns the UID.
func createInState(t *testing.T, client dynamic.ResourceInterface, o *unstructured.Unstructured) types.UID {
	t.Helper()
	what := o.GetKind() + " " + o.GetName()
	status, hasStatus := o.Object["status"]
	_, deleted, err := unstructured.NestedFieldNoCopy(o.Object, "metadata", "deletionTimestamp")
	require.NoError(t, err)
	unstructured.RemoveNestedField(o.Object, "metadata", "deletionTimestamp")
	var created *unstructured.Unstructured
	require.Eventually(t, func() bool {
		created, err = client.Create(t.Context(), o, metav1.CreateOptions{})
		return !apierrors.IsNotFound(err) // of a custom resource
	}, patience, pollEvery, what)
	require.NoError(t, err, what)
	if hasStatus && o.GroupVersionKind().Group != "example.com" {
		created.Object["status"] = status
		_, err = client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err, what)
	}
	if deleted {
		require.NoError(t, client.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}), what)
	}
	return created.GetUID()
}

func printerColumns(t *testing.T, definition *unstructured.Unstructured) []store.Column {
	t.Helper()
	var crd struct {
		Spec struct {
			Versions []struct {
				AdditionalPrinterColumns []store.Column `json:"additionalPrinterColumns"`
			} `json:"versions"`
		} `json:"spec"`
	}
	raw, err := definition.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &crd))
	return crd.Spec.Versions[0].AdditionalPrinterColumns
}

// getTable returns the server's table of a resource with the rows of the given objects.
func getTable(t *testing.T, client *http.Client, host string, m *meta.RESTMapping, objects map[types.UID]bool) recordedTable {
	t.Helper()
	r := m.Resource
	prefix := "/apis/" + r.Group + "/"
	if r.Group == "" {
		prefix = "/api/"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, host+prefix+r.Version+"/"+r.Resource+"?includeObject=Object", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, r)
	now, err := http.ParseTime(resp.Header.Get("Date"))
	require.NoError(t, err)
	recorded := recordedTable{
		Info: store.Info{
			ID: r.GroupResource().String(), Group: r.Group, Version: r.Version, Resource: r.Resource,
			Kind: m.GroupVersionKind.Kind, Namespaced: m.Scope.Name() == meta.RESTScopeNameNamespace,
		},
		Now: now,
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&recorded.Table))
	var rows []metav1.TableRow
	for _, row := range recorded.Table.Rows {
		var o unstructured.Unstructured
		require.NoError(t, o.UnmarshalJSON(row.Object.Raw))
		if !objects[o.GetUID()] {
			continue
		}
		o.SetManagedFields(nil)
		row.Object.Raw, err = o.MarshalJSON()
		require.NoError(t, err)
		rows = append(rows, row)
	}
	recorded.Table.Rows = rows
	return recorded
}

func writeTables(t *testing.T, file string, tables map[string]recordedTable) {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(w).Encode(tables))
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
}

func readTables(t *testing.T, file string) map[string]recordedTable {
	t.Helper()
	raw := harness.ReadFile(t, file)
	r, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	var tables map[string]recordedTable
	require.NoError(t, json.NewDecoder(r).Decode(&tables))
	return tables
}

// columnsFile returns the columns of the built-in kinds that have a printer, one a line.
func columnsFile(t *testing.T, tables map[string]recordedTable) []byte {
	t.Helper()
	var kinds []string
	for _, id := range slices.Sorted(maps.Keys(tables)) {
		columns := tables[id].Table.ColumnDefinitions
		if tables[id].Description.Custom || columns[1].Name == "Created At" {
			continue
		}
		var lines []string
		for _, c := range columns {
			line, err := json.Marshal(c)
			require.NoError(t, err)
			lines = append(lines, "    "+string(line))
		}
		kinds = append(kinds, fmt.Sprintf("  %q: [\n%s\n  ]", id, strings.Join(lines, ",\n")))
	}
	return []byte("{\n" + strings.Join(kinds, ",\n") + "\n}\n")
}
