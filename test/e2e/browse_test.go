package e2e

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/localapi/statuspage"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// wide is a cache whose names and values are long.
func wide(t *testing.T) *bolt.DB {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "cache.db"), bolt.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	fill := func(info store.Info, n int) {
		c, err := db.Open(info)
		require.NoError(t, err)
		at := func(rv int, before time.Duration) store.Checkpoint {
			return store.Checkpoint{RV: fmt.Sprint(rv), Cluster: "one", ListReason: store.ReasonExpired, LastEvent: time.Now().Add(-before)}
		}
		r, err := c.Replace()
		require.NoError(t, err)
		require.NoError(t, r.Commit(at(48_000_000, 2*time.Hour)))
		for i := range n {
			rv := 48_000_001 + i
			o := storetest.Object(strings.Repeat("shop-", 12)+"x", fmt.Sprint(strings.Repeat("till", 40), "-", i), "u", fmt.Sprint(rv), nil, strings.Repeat("x", 3000))
			require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}, Checkpoint: at(rv, 10*time.Minute)}))
		}
	}
	fill(storetest.Info("configmaps"), 201)
	crd := storetest.Info("horizontallyscaledcashregisters.inventory.shops.example.com")
	fill(crd, 1)
	secrets := storetest.Info("secrets")
	secrets.Resource, secrets.Kind = "secrets", "Secret"
	fill(secrets, 1)
	return db
}

// columns are those of a pod or, for a custom resource, twelve.
func columns(collection string) ([]string, func([]byte) ([]string, error)) {
	heads, cells := []string{"Ready", "Status", "Restarts", "Age"}, []string{"0/1", "Init:CrashLoopBackOff", "1274 (3m12s ago)", "411d"}
	if strings.Contains(collection, ".") {
		heads = strings.Split("Desired Updated Available Unavailable Phase Reason Version Upgradeable Degraded Owner Zone Age", " ")
		cells = heads
	}
	return heads, func([]byte) ([]string, error) { return cells, nil }
}

// TestObjectPagesLayout follows the links from the status page to an object, on screens down to the
// smallest phone and without scripts: no page is wider than the screen, all text contrasts with its
// background, and the browser has nothing to complain of.
func TestObjectPagesLayout(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	server := httptest.NewServer(statuspage.Handler(statuspage.Options{
		Source: localapi.FromDB(wide(t), localapi.Options{}), Table: columns, Node: "edge-store-0042", Done: t.Context().Done(),
	}))
	t.Cleanup(server.Close)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	for _, s := range []screen{{name: "small phone", width: 320, height: 568}, phone, desktop} {
		for _, s.dark = range []bool{false, true} {
			look := func(name string) {
				require.LessOrEqual(t, evaluate[int64](b, `document.documentElement.scrollWidth`), s.width, "%s is wider than %s", name, s.name)
				require.Empty(t, evaluate[[]string](b, faintTexts), "%s on %s, dark: %t", name, s.name, s.dark)
				b.picture(fmt.Sprintf("%s-%s-dark=%t", name, s.name, s.dark))
			}
			follow := func(name, selector, title string) {
				href := evaluate[string](b, `document.querySelector(`+quoted(selector)+`).href`)
				require.True(t, strings.HasPrefix(href, server.URL+"/browse/"), href)
				b.open(href, s)
				require.True(t, strings.HasPrefix(b.text("h1"), title), b.text("h1"))
				require.Empty(t, b.text("#problem"))
				look(name)
			}
			b.open(server.URL+"/", s)
			look("status")
			follow("collections", "#head a", "objects")
			follow("namespace", "nav a", "objects in namespace shop-")
			follow("objects", "tbody a", "configmaps")
			follow("next-page", "nav a:last-child", "configmaps")
			follow("object", "tbody a", "shop-")
			require.Contains(t, b.text("pre"), "kind: ConfigMap")
			b.open(server.URL+"/browse/horizontallyscaledcashregisters.inventory.shops.example.com", s)
			look("custom")
			require.GreaterOrEqual(t, evaluate[int64](b, `document.querySelectorAll("tbody td")[1].clientWidth`), int64(90), "the name can be read")
			b.open(server.URL+"/browse/configmaps", s)
			follow("changes", "nav a", "changes of the last hour")
			b.open(server.URL+"/browse/secrets", s)
			follow("secret", "tbody a", "shop-")
			b.open(server.URL+"/browse/configmaps/object?key="+strings.Repeat("x", 500), s)
			require.NotEmpty(t, b.text("#problem"))
			look("not-found")
		}
	}

	// The filter is a form, which the policy lets a browser send.
	b.open(server.URL+"/browse/configmaps", phone)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{})
	b.submit("input", strings.Repeat("till", 40)+"-29")
	require.Equal(t, 1, strings.Count(b.text("tbody"), "till-"))

	asked, messages := b.activity()
	for _, url := range asked {
		if url != "data:," {
			require.True(t, strings.HasPrefix(url, server.URL), url)
		}
	}
	for _, m := range messages {
		require.Contains(t, m, "404", "the browser complained")
	}
}
