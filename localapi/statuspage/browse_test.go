package statuspage

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/kubeapi"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

const evil = `"><script>alert(1)</script><b onclick='x'>`

// checkpoint returns one that was proven before now.
func checkpoint(rv int, before time.Duration) store.Checkpoint {
	return store.Checkpoint{RV: fmt.Sprint(rv), Cluster: "one", ListReason: store.ReasonExpired, LastEvent: now.Add(-before)}
}

func parsed(t *testing.T, raw string) store.Change {
	t.Helper()
	o, err := object.Parse([]byte(raw))
	require.NoError(t, err)
	return storetest.Put(o)
}

func list(t *testing.T, db store.DB, info store.Info, cp store.Checkpoint, changes ...store.Change) store.Collection {
	t.Helper()
	c, err := db.Open(info)
	require.NoError(t, err)
	r, err := c.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(cp))
	return c
}

func info(id, kind string, namespaced bool) store.Info {
	return store.Info{ID: id, Version: "v1", Resource: id, Kind: kind, Namespaced: namespaced}
}

// cached fills a database.
//
//	configmaps   shop/till and kiosk/sign, whose texts are hostile; since the list, two hours ago,
//	             shop/till was modified, shop/old deleted and shop/new added
//	nodes        edge-1, listed five minutes ago
//	secrets      shop/token, applied by kubectl
//	pods@shop    never synced, though an interrupted list left an object
func cached(t *testing.T, db store.DB) {
	quoted, err := json.Marshal(evil)
	require.NoError(t, err)
	sign := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sign","namespace":"kiosk","uid":"u2","resourceVersion":"2","annotations":{%s:%s}},"data":{"n":%s}}`, quoted, quoted, quoted)
	c := list(t, db, info("configmaps", "ConfigMap", true), checkpoint(5, 2*time.Hour),
		storetest.Put(storetest.Object("shop", "till", "u1", "1", nil, "")), parsed(t, sign),
		storetest.Put(storetest.Object("shop", "old", "u3", "3", nil, "")))
	require.NoError(t, c.Apply(store.Batch{Checkpoint: checkpoint(7, 50*time.Minute), Changes: []store.Change{
		parsed(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"till","namespace":"shop","uid":"u1","resourceVersion":"6","generation":9007199254740993},"data":{"yes":"no","many":"a\nb"},"list":[1,2.5,true,null]}`),
		{Key: "shop/old", RV: "7"},
	}}))
	require.NoError(t, c.Apply(store.Batch{Checkpoint: checkpoint(8, 3*time.Minute), Changes: []store.Change{
		storetest.Put(storetest.Object("shop", "new", "u4", "8", nil, "")),
	}}))
	list(t, db, info("nodes", "Node", false), checkpoint(5, 5*time.Minute), storetest.Put(storetest.Object("", "edge-1", "u5", "5", nil, "")))
	list(t, db, info("secrets", "Secret", true), checkpoint(5, 5*time.Minute), parsed(t,
		`{"apiVersion":"v1","kind":"Secret","type":"Opaque","immutable":true,"metadata":{"name":"token","namespace":"shop","uid":"u6","resourceVersion":"4","labels":{"app":"till"},
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"password\":\"aHVudGVyMg==\"}}"}},"data":{"password":"aHVudGVyMg=="},"stringData":{"user":"hunter2"},"other":["hunter2"]}`))
	pods := info("pods@shop", "Pod", true)
	pods.Resource, pods.Namespace = "pods", "shop"
	p, err := db.Open(pods)
	require.NoError(t, err)
	require.NoError(t, p.Apply(store.Batch{Changes: []store.Change{storetest.Put(storetest.Object("shop", "half", "u7", "8", nil, ""))}}))
}

// site is the pages on a database.
type site struct{ handler http.Handler }

func newSite(db store.DB) site {
	at := testingclock.NewFakeClock(now)
	collections := []*kubeapi.Collection{}
	stored, err := db.Collections()
	if err != nil {
		panic(err)
	}
	for _, info := range stored {
		collections = append(collections, &kubeapi.Collection{
			Info: func() store.Info { return info }, Description: sync.OnceValue(func() *store.Description { return described(db, info.ID) }),
		})
	}
	api := kubeapi.New(kubeapi.Options{Clock: at, Collections: func() []*kubeapi.Collection { return collections }})
	return site{Handler(Options{Node: "edge-7", Source: localapi.FromDB(db, localapi.Options{Clock: at}), Table: api.Table, Clock: at})}
}

func described(db store.DB, id string) *store.Description {
	v, err := db.View(id)
	if err != nil {
		panic(err)
	}
	defer v.Close()
	d, err := v.Description()
	if err != nil {
		panic(err)
	}
	return &d
}

func cachedSite(t *testing.T) site {
	db := newBolt(t)
	cached(t, db)
	return newSite(db)
}

func newBolt(t *testing.T) *bolt.DB {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "cache.db"), bolt.Options{HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// page is an answer.
type answered struct {
	code int
	body string
	text string // without tags, as it is read
	yaml string
}

var tags = regexp.MustCompile(`<[^>]*>`)

// get requests a page, and checks what every page promises.
func (s site) get(t *testing.T, path string) answered {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body := w.Body.String()
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"), path)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	security := w.Header().Get("Content-Security-Policy")
	require.Contains(t, security, "default-src 'none'")
	require.NotContains(t, security, "script-src")
	require.NotContains(t, security, "unsafe")
	styles := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(body, -1)
	require.Len(t, styles, 1)
	require.Contains(t, security, "style-src '"+hash(styles[0][1])+"'")
	require.NotContains(t, body, "<script", path)
	require.NotContains(t, body, "<b onclick", path)
	requireLocal(t, body)
	_, main, _ := strings.Cut(body, "<main>")
	pre := append(regexp.MustCompile(`(?s)<pre>(.*)</pre>`).FindStringSubmatch(body), "", "")
	return answered{code: w.Code, body: body, yaml: html.UnescapeString(pre[1]), text: strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(main, " "))), " ")}
}

// links returns the targets of the links with a text.
func (a answered) links(text string) (all []string) {
	for _, m := range regexp.MustCompile(`<a href="([^"]*)">([^<]*)</a>`).FindAllStringSubmatch(a.body, -1) {
		if html.UnescapeString(m[2]) == text {
			all = append(all, html.UnescapeString(m[1]))
		}
	}
	return all
}

// The status page leads to every object by links alone.
func TestBrowse_LinksLeadFromTheStatusPageToAnObject(t *testing.T) {
	s := cachedSite(t)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Contains(t, w.Body.String(), `<a href="/browse/configmaps">`)
	require.Contains(t, w.Body.String(), `<a href="/browse/pods@shop">`)
	require.Equal(t, []string{"/browse/"}, answered{body: w.Body.String()}.links("Look at them"))

	all := s.get(t, "/browse/")
	require.Equal(t, 200, all.code)
	require.Contains(t, all.text, "Collection Objects Age State configmaps 3 3m0s stored nodes 1 5m0s stale, stored pods@shop never synced, stored secrets 1 5m0s stale, stored")
	require.Equal(t, []string{"/browse/?namespace=shop"}, all.links("shop (3)"))

	shop := s.get(t, all.links("shop (3)")[0])
	require.Contains(t, shop.text, "objects in namespace shop")
	require.Contains(t, shop.text, "configmaps 2 3m0s stored pods@shop never synced, stored secrets 1")
	require.NotContains(t, shop.text, "nodes", "a cluster-scoped collection on a namespace's page")

	maps := s.get(t, shop.links("configmaps")[0])
	require.Equal(t, 200, maps.code)
	require.Contains(t, maps.text, "stored, 3m0s old")
	require.Contains(t, maps.text, "Namespace Name Data Age shop new 1 <unknown> shop till 2 <unknown>")
	require.Contains(t, maps.body, `<option>kiosk</option><option selected>shop</option>`)

	till := s.get(t, maps.links("till")[0])
	require.Equal(t, 200, till.code)
	require.Equal(t, `apiVersion: v1
data:
  many: |-
    a
    b
  "yes": "no"
kind: ConfigMap
list:
- 1
- 2.5
- true
- null
metadata:
  generation: 9007199254740993
  name: till
  namespace: shop
  resourceVersion: "6"
  uid: u1
`, till.yaml)
	require.Contains(t, till.text, "Change modified 50m ago")
	raw := till.links("as JSON")
	require.Equal(t, []string{"/v1alpha1/collections/configmaps/objects?key=shop%2Ftill"}, raw)

	changes := s.get(t, maps.links("changes of the last hour")[0])
	require.Contains(t, changes.text, "Received Change Object Version 3m ago added shop/new 8 50m ago deleted shop/old 7 50m ago modified shop/till 6")
	require.Len(t, changes.links("shop/till"), 1)
	require.Empty(t, changes.links("shop/old"), "a deleted object has no link")
	require.Equal(t, maps.links("till"), changes.links("shop/till"))
}

// A page has the reason why it can't show more, with the status of the local API.
func TestBrowse_Errors(t *testing.T) {
	s := cachedSite(t)
	for _, tc := range []struct {
		name, path string
		code       int
		text       string
	}{
		{"unknown collection", "/browse/absent", 404, "collection absent: not cached"},
		{"changes of an unknown collection", "/browse/absent/changes", 404, "collection absent: not cached"},
		{"object of an unknown collection", "/browse/absent/object?key=a", 404, "collection absent: not cached"},
		{"hostile collection", "/browse/" + url.PathEscape(evil), 404, "collection " + evil + ": not cached"},
		{"never synced", "/browse/pods@shop", 503, "collection pods@shop: never synced"},
		{"changes of one never synced", "/browse/pods@shop/changes", 503, "collection pods@shop: never synced"},
		{"object of one never synced", "/browse/pods@shop/object?key=shop%2Fhalf", 503, "collection pods@shop: never synced"},
		{"no object", "/browse/configmaps/object?key=shop%2Fti", 404, "collection configmaps: shop/ti: not found"},
		{"deleted object", "/browse/configmaps/object?key=shop%2Fold", 404, "Change deleted 50m ago"},
		{"hostile key", "/browse/configmaps/object?key=" + url.QueryEscape(evil), 404, "collection configmaps: " + evil + ": not found"},
		{"no key", "/browse/configmaps/object", 400, "bad query: the parameter key is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := s.get(t, tc.path)
			require.Equal(t, tc.code, a.code, a.text)
			require.Contains(t, a.text, tc.text)
			require.Contains(t, a.body, `id="problem"`)
			require.NotContains(t, a.body, ">none<", "an error is not an empty answer")
			require.Empty(t, a.yaml)
		})
	}
	w := httptest.NewRecorder()
	broken := statusSource{status: func() (*localapi.Status, error) { return nil, errors.New("no " + evil) }}
	Handler(Options{Source: broken}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/browse/", nil))
	require.Equal(t, 500, w.Code)
	require.Contains(t, w.Body.String(), "no &#34;&gt;&lt;script&gt;")
}

// Names and values from the server don't become a part of the page.
func TestBrowse_HostileTextIsEscaped(t *testing.T) {
	s := cachedSite(t)
	sign := s.get(t, "/browse/configmaps/object?key=kiosk/sign")
	require.Equal(t, 200, sign.code)
	require.Contains(t, sign.body, "&lt;script&gt;alert")
	require.Contains(t, sign.yaml, "\"n\": '"+strings.ReplaceAll(evil, "'", "''")+"'")

	require.Equal(t, "/browse/a%2Fb%3Fc/object?key=d%26e", link("/browse/", "a/b?c", "/object", "key", "d&e", "name", ""))
	none := s.get(t, "/browse/configmaps?namespace="+url.QueryEscape(evil)+"&name="+url.QueryEscape(evil)+"&after="+url.QueryEscape(evil))
	require.Equal(t, 200, none.code)
	require.Contains(t, none.text, "Namespace Name Data Age none")
	require.Contains(t, s.get(t, "/browse/?namespace="+url.QueryEscape(evil)).text, "objects in namespace "+evil)
}

// A page of a Secret has its keys, and no value of it: not in an annotation either.
func TestBrowse_SecretsHaveNoValues(t *testing.T) {
	a := cachedSite(t).get(t, "/browse/secrets/object?key=shop/token")
	require.Equal(t, 200, a.code)
	for _, secret := range []string{"aHVudGVyMg", "hunter2"} {
		require.NotContains(t, a.body, secret)
	}
	require.Equal(t, `apiVersion: v1
data:
  password: 12 characters
immutable: true
kind: Secret
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: 36 characters
  labels:
    app: till
  name: token
  namespace: shop
  resourceVersion: "4"
  uid: u6
other: {}
stringData:
  user: 7 characters
type: Opaque
`, a.yaml)
	require.Contains(t, a.text, "The values are not shown here: snapcache dump secrets prints them.")
	require.Empty(t, a.links("as JSON"), "no link to the JSON of a Secret")
}

// The objects of a resource have the columns of kubectl get, those of a Secret without its values, even if a
// definition has a column for one.
func TestBrowse_ColumnsOfGet(t *testing.T) {
	db := memory.New()
	defer db.Close()
	list(t, db, info("pods", "Pod", true), checkpoint(5, time.Minute), parsed(t, fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"4","creationTimestamp":%q},
		"spec":{"containers":[{"name":"c"},{"name":"d"}]},"status":{"phase":"Running","containerStatuses":[{"name":"c","ready":true,"restartCount":2,"state":{"running":{}}},{"name":"d","restartCount":1,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`,
		now.Add(-3*time.Hour).UTC().Format(time.RFC3339))))
	list(t, db, info("secrets", "Secret", true), checkpoint(5, time.Minute), parsed(t,
		`{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"token","namespace":"shop","uid":"u","resourceVersion":"4"},"data":{"password":"aHVudGVyMg=="}}`))
	columns := store.Description{Custom: true, Columns: []store.Column{
		{Name: "Value", Type: "string", JSONPath: ".data.password"}, {Name: "More", Type: "string", Priority: 1, JSONPath: ".data.password"},
	}}
	for _, kind := range []string{"Secret", "Widget"} {
		x := info(strings.ToLower(kind)+"s.example.com", kind, true)
		x.Group, x.Resource = "example.com", strings.ToLower(kind)+"s"
		c := list(t, db, x, checkpoint(5, time.Minute), parsed(t, fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":"x","namespace":"shop","uid":"u","resourceVersion":"4"},"data":{"password":"hunter2"}}`, kind)))
		require.NoError(t, c.Describe(columns))
	}
	s := newSite(db)
	for path, want := range map[string]string{
		"/browse/pods":                "Namespace Name Ready Status Restarts Age shop web 1/2 CrashLoopBackOff 3 3h",
		"/browse/secrets":             "Namespace Name Type Data Age shop token Opaque 1 <unknown>",
		"/browse/secrets.example.com": "Namespace Name shop x",
		"/browse/widgets.example.com": "Namespace Name Value shop x hunter2",
	} {
		a := s.get(t, path)
		require.Equal(t, 200, a.code, a.text)
		require.Contains(t, a.text, want)
	}
	require.NotContains(t, s.get(t, "/browse/widgets.example.com").text, "More", "a column of -o wide")
	require.NotContains(t, s.get(t, "/browse/secrets.example.com").body, "hunter2")
}

// A collection with many objects comes in pages, which together have each object once, also under a
// filter.
func TestBrowse_Pages(t *testing.T) {
	db := memory.New()
	defer db.Close()
	var many []store.Change
	for i := range 2*maxRows + 1 {
		many = append(many, storetest.Put(storetest.Object("shop", fmt.Sprintf("till-%03d", i), "u", "1", nil, "")))
	}
	many = append(many, storetest.Put(storetest.Object("shop", "sign", "u", "1", nil, "")),
		storetest.Put(storetest.Object("shop", "zip", "u", "1", nil, "")), storetest.Put(storetest.Object("zoo", "till-1", "u", "1", nil, "")))
	list(t, db, info("configmaps", "ConfigMap", true), checkpoint(5, time.Minute), many...)
	s := newSite(db)
	name := regexp.MustCompile(`>(till-\d+|sign|zip)</a>`)
	for _, tc := range []struct {
		name, query string
		rows        []int
	}{
		{"all", "", []int{maxRows, maxRows, 4}},
		{"one namespace", "?namespace=shop", []int{maxRows, maxRows, 3}},
		{"a prefix of the name", "?name=till", []int{maxRows, maxRows, 2}},
		{"both", "?namespace=shop&name=till-", []int{maxRows, maxRows, 1}},
		{"a full page", "?namespace=shop&name=till-0", []int{100}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := map[string]bool{}
			path := "/browse/configmaps" + tc.query
			for i, rows := range tc.rows {
				a := s.get(t, path)
				found := name.FindAllString(a.body, -1)
				require.Len(t, found, rows)
				for _, x := range regexp.MustCompile(`key=[^"]*`).FindAllString(a.body, -1) {
					require.False(t, seen[x], x)
					seen[x] = true
				}
				next := a.links("next page")
				require.Equal(t, i < len(tc.rows)-1, len(next) == 1)
				if len(next) == 1 {
					path = next[0]
				}
			}
		})
	}
}

// Of very many changes a page has the newest, and one with a short history has a note about it.
func TestBrowse_Changes(t *testing.T) {
	db := newBolt(t)
	c := list(t, db, info("nodes", "Node", false), checkpoint(5, 10*time.Minute))
	s := newSite(db)
	a := s.get(t, "/browse/nodes/changes")
	require.Equal(t, 200, a.code)
	require.Contains(t, a.text, "The history began 10m ago. Received Change Object Version none")
	const n = 5*maxRows + 7
	for i := range n {
		require.NoError(t, c.Apply(store.Batch{Checkpoint: checkpoint(6+i, 5*time.Minute), Changes: []store.Change{
			storetest.Put(storetest.Object("", fmt.Sprint("edge-", i), "u", fmt.Sprint(6+i), nil, "")),
		}}))
	}
	a = s.get(t, "/browse/nodes/changes")
	require.Contains(t, a.text, "These are the newest 200 of 1,007 changes: snapcache changes prints all.")
	found := regexp.MustCompile(`>(edge-\d+)</a>`).FindAllStringSubmatch(a.body, -1)
	require.Len(t, found, maxRows)
	for i, m := range found {
		require.Equal(t, fmt.Sprint("edge-", n-1-i), m[1], "the newest first")
	}
	require.Equal(t, 200, s.get(t, a.links(found[0][1])[0]).code)
	require.Contains(t, s.get(t, "/browse/nodes/object?key=edge-1").text, "Change added 5m ago")
}

// The pages of a store without a history have a reason in place of the changes.
func TestBrowse_NoHistory(t *testing.T) {
	db := memory.New()
	defer db.Close()
	cached(t, db)
	s := newSite(db)
	const why = "the store keeps no history of changes: it is in memory, see snapcache status and store.type in the agent's configuration"
	a := s.get(t, "/browse/configmaps/changes")
	require.Equal(t, 501, a.code)
	require.Contains(t, a.text, why)
	a = s.get(t, "/browse/configmaps/object?key=shop/till")
	require.Equal(t, 200, a.code)
	require.Contains(t, a.text, why)
}

// Corrupt records are named, and don't hide the others.
func TestBrowse_CorruptRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache.db")
	db, err := bolt.Open(path, bolt.Options{HistoryRetention: storetest.HistoryRetention})
	require.NoError(t, err)
	cached(t, db)
	require.NoError(t, db.Close())
	raw, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, raw.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte("configmaps"))
		return c.ForEachBucket(func(gen []byte) error {
			objects := c.Bucket(gen).Bucket([]byte("objects"))
			record := append([]byte(nil), objects.Get([]byte("shop/new"))...)
			record[len(record)-1] ^= 0xff
			return objects.Put([]byte("shop/new"), record)
		})
	}))
	require.NoError(t, raw.Close())
	db, err = bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	s := newSite(db)
	const corrupt = "collection configmaps: record shop/new is corrupt"
	for _, tc := range []struct {
		name, path string
		code       int
		text       string
	}{
		{"collections", "/browse/", 500, "configmaps 2"},
		{"objects", "/browse/configmaps", 500, "shop till 2"},
		{"changes", "/browse/configmaps/changes", 500, "modified shop/till"},
		{"the object", "/browse/configmaps/object?key=shop/new", 500, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := s.get(t, tc.path)
			require.Equal(t, tc.code, a.code)
			require.Contains(t, a.text, corrupt)
			require.Contains(t, a.text, tc.text)
		})
	}
	require.Equal(t, 200, s.get(t, "/browse/configmaps/object?key=shop/till").code)
	require.Equal(t, 200, s.get(t, "/browse/nodes").code)
}

// An object that is too large to be shown is linked.
func TestBrowse_LargeObject(t *testing.T) {
	db := memory.New()
	defer db.Close()
	list(t, db, info("configmaps", "ConfigMap", true), checkpoint(5, time.Minute), storetest.Put(storetest.Object("shop", "big", "u", "1", nil, strings.Repeat("x", maxYAMLBytes))))
	a := newSite(db).get(t, "/browse/configmaps/object?key=shop/big")
	require.Equal(t, 200, a.code)
	require.Contains(t, a.text, "The object is too large to be shown.")
	require.Empty(t, a.yaml)
	require.Less(t, len(a.body), 20_000)
	require.Len(t, a.links("as JSON"), 1)
}

// Every user of the machine can read the bare page: it neither has the objects nor leads to them.
func TestBrowse_NotOnBarePage(t *testing.T) {
	db := memory.New()
	defer db.Close()
	cached(t, db)
	bare := Handler(Options{Source: localapi.FromDB(db, localapi.Options{}), Bare: true})
	for _, path := range []string{"/browse/", "/browse/configmaps", "/browse/configmaps/object?key=shop/till", "/browse/configmaps/changes"} {
		w := httptest.NewRecorder()
		bare.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, 404, w.Code, path)
	}
	w := httptest.NewRecorder()
	bare.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 200, w.Code)
	require.NotContains(t, w.Body.String(), "/browse/")
}
