package statuspage

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// maxRows limits the objects or changes on a page.
const maxRows = 200

var (
	//go:embed browse.html
	browseHTML string

	browsePage = template.Must(template.Must(page.Clone()).New("browse").Parse(browseHTML))

	// browsePolicy is the Content-Security-Policy of the pages of the browser, which have no
	// script.
	browsePolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'", hash(style))
)

// browse serves pages of the cached objects. They are for the agent's socket alone.
func (h *handler) browse(mux *http.ServeMux) {
	mux.HandleFunc("GET /browse/{$}", h.sheet(h.collections))
	mux.HandleFunc("GET /browse/{collection}", h.sheet(h.objects))
	mux.HandleFunc("GET /browse/{collection}/object", h.sheet(h.object))
	mux.HandleFunc("GET /browse/{collection}/changes", h.sheet(h.changes))
}

// sheet is the input of the template.
type sheet struct {
	Style   template.CSS
	Node    string
	Path    []cell // the pages above this one
	Title   string
	State   cell     // how fresh the content is
	Problem string   // why the page is not complete
	Notes   []string // in a line each
	Filter  *localapi.KeyQuery
	Choices []localapi.IndexValue // the namespaces of the filter
	Head    []string              // of the table; nil for no table
	Rows    [][]cell
	Links   []cell
	Facts   facts
	Text    string // an object as YAML
}

// cell is a text of a table or a list. All but Text may be empty.
type cell struct {
	Text, Link string
	Level      localapi.Level
	Time       string // the exact time of Text
}

// sheet returns the handler of a page that fill fills. After an error the page has the
// content that was read before, the error, and its status.
func (h *handler) sheet(fill func(*http.Request, *sheet) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusOK
		s := &sheet{Style: template.CSS(style), Node: h.opts.Node, Path: []cell{{Text: "status", Link: "/"}, {Text: "objects", Link: "/browse/"}}} //nolint:gosec // it is embedded
		if err := fill(r, s); err != nil {
			s.Problem, code = err.Error(), localapi.StatusCode(err)
		}
		render(w, browsePolicy, code, browsePage, s)
	}
}

// link returns a URL. The parameters are names and values; a name without a value is left out.
func link(path, id, page string, parameters ...string) string {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	u := path + url.PathEscape(id) + page
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// collections shows all collections or, with the parameter namespace, the ones with objects there.
func (h *handler) collections(r *http.Request, s *sheet) error {
	namespace := r.FormValue("namespace")
	s.Title = "objects"
	if namespace != "" {
		s.Title += " in namespace " + namespace
	}
	status, err := h.opts.Source.Status(r.Context())
	if err != nil {
		return err
	}
	f := status.Freshness()
	s.State = cell{Text: f.Text, Level: f.Level}
	var synced []string
	for _, c := range status.Collections {
		if c.Synced {
			synced = append(synced, c.ID)
		}
	}
	values, err := h.opts.Source.Index(r.Context(), synced, store.NamespaceIndex)
	if err != nil && !errors.As(err, new(*localapi.CorruptRecordsError)) {
		return err
	}
	all, here := map[string]int64{}, map[string]int64{} // objects by namespace, and by collection
	for i, of := range values {
		for _, v := range of {
			all[v.Value] += v.Objects
			if namespace == "" || v.Value == namespace {
				here[synced[i]] += v.Objects
			}
		}
	}
	s.Head = []string{"Collection", "Objects", "Age", "State"}
	for _, c := range status.Collections {
		objects := ""
		if c.Synced {
			if namespace != "" && here[c.ID] == 0 {
				continue
			}
			objects = humanize.Comma(here[c.ID])
		}
		level, state := c.State()
		s.Rows = append(s.Rows, []cell{
			{Text: c.ID, Link: link("/browse/", c.ID, "", "namespace", namespace)}, {Text: objects}, {Text: c.Age()}, {Text: state, Level: level},
		})
	}
	delete(all, "") // cluster-scoped objects
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s.Links = append(s.Links, cell{Text: name + " (" + humanize.Comma(all[name]) + ")", Link: link("/browse/", "", "", "namespace", name)})
	}
	return err
}

// collection returns the collection that a page is about, and adds its state to the page.
func (h *handler) collection(r *http.Request, s *sheet) (localapi.Collection, error) {
	id := r.PathValue("collection")
	s.Title = id
	s.Path = append(s.Path, cell{Text: id, Link: link("/browse/", id, "")})
	status, err := h.opts.Source.Status(r.Context())
	if err != nil {
		return localapi.Collection{}, err
	}
	at := slices.IndexFunc(status.Collections, func(c localapi.Collection) bool { return c.ID == id })
	if at < 0 {
		return localapi.Collection{}, fmt.Errorf("collection %s: %w", id, store.ErrNoCollection)
	}
	c := status.Collections[at]
	s.State.Level, s.State.Text = c.State()
	if c.Synced && !c.CaughtUp {
		s.State.Text += ", " + c.Freshness()
	}
	return c, nil
}

func (h *handler) objects(r *http.Request, s *sheet) error {
	c, err := h.collection(r, s)
	if err != nil {
		return err
	}
	ids := []string{c.ID}
	q := localapi.KeyQuery{Namespace: r.FormValue("namespace"), NamePrefix: r.FormValue("name"), After: r.FormValue("after"), Limit: maxRows + 1}
	values, err := h.opts.Source.Index(r.Context(), ids, store.NamespaceIndex)
	if err != nil && !errors.As(err, new(*localapi.CorruptRecordsError)) {
		return err
	}
	s.Filter, s.Choices = &q, values[0]
	s.Links = []cell{{Text: "changes of the last hour", Link: link("/browse/", c.ID, "/changes")}}
	var keys []string
	err = h.opts.Source.Keys(r.Context(), ids, q, func(_ string, k localapi.Key) error {
		if len(keys) == maxRows {
			s.Links = append(s.Links, cell{Text: "next page", Link: link("/browse/", c.ID, "", "namespace", q.Namespace, "name", q.NamePrefix, "after", keys[maxRows-1])})
			return nil
		}
		keys = append(keys, k.Key)
		return nil
	})
	return errors.Join(err, h.rows(r.Context(), s, c, keys))
}

// rows adds the rows of objects to a page, with the columns of kubectl get. An object that was deleted
// meanwhile has none.
func (h *handler) rows(ctx context.Context, s *sheet, c localapi.Collection, keys []string) (failed error) {
	var columns []string
	var cells func(raw []byte) ([]string, error)
	if h.opts.Table != nil && !isForeignSecret(c) {
		columns, cells = h.opts.Table(c.ID)
	}
	s.Head = append([]string{"Namespace", "Name"}, columns...)
	for _, key := range keys {
		namespace := store.KeyNamespace(key)
		row := []cell{{Text: namespace}, {Text: strings.TrimPrefix(key, namespace+"/"), Link: link("/browse/", c.ID, "/object", "key", key)}}
		err := error(nil)
		if cells != nil {
			err = h.opts.Source.Objects(ctx, []string{c.ID}, localapi.ObjectQuery{Key: key}, func(raw []byte) error {
				texts, err := cells(raw)
				for _, text := range texts {
					row = append(row, cell{Text: text})
				}
				return err
			})
		}
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		s.Rows, failed = append(s.Rows, row), errors.Join(failed, err)
	}
	return failed
}

func (h *handler) changes(r *http.Request, s *sheet) error {
	c, err := h.collection(r, s)
	if err != nil {
		return err
	}
	s.Title = "changes of the last hour"
	now := h.opts.Clock.Now()
	q := localapi.ChangeQuery{SinceTime: now.Add(-time.Hour).Truncate(time.Second)}
	if since := c.HistorySince; since.RV != "" && !since.Time.Before(q.SinceTime) {
		q = localapi.ChangeQuery{Since: since.RV}
		s.Notes = append(s.Notes, "The history began "+localapi.Ago(now, since.Time)+".")
	}
	var newest []localapi.Change
	n := 0
	err = h.opts.Source.Changes(r.Context(), c.ID, q, func(x localapi.Change) error {
		if x.Type == localapi.Bookmark {
			return nil
		}
		n++
		if newest = append(newest, x); len(newest) == 2*maxRows {
			newest = append(newest[:0], newest[maxRows:]...)
		}
		return nil
	})
	newest = newest[max(0, len(newest)-maxRows):]
	if n > len(newest) {
		s.Notes = append(s.Notes, "These are the newest "+strconv.Itoa(maxRows)+" of "+english.Plural(n, "change", "")+": snapcache changes prints all.")
	}
	s.Head = []string{"Received", "Change", "Object", "Version"}
	for _, x := range slices.Backward(newest) {
		name := cell{Text: object.Key(x.Namespace, x.Name)}
		if x.Type != store.Deleted {
			name.Link = link("/browse/", c.ID, "/object", "key", name.Text)
		}
		s.Rows = append(s.Rows, []cell{
			{Text: localapi.Ago(now, x.Time), Time: x.Time.UTC().Format(time.RFC3339)}, {Text: strings.ToLower(string(x.Type))},
			name, {Text: x.ResourceVersion},
		})
	}
	return err
}
