package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	core = schema.GroupVersion{Version: "v1"}
	apps = schema.GroupVersion{Group: "apps", Version: "v1"}
	shop = schema.GroupVersion{Group: "shop.example.com", Version: "v1beta1"}
)

// server is a server with OpenAPI documents.
type server struct {
	hashes map[string]string // by path below root
	bodies map[string]func() io.Reader
	asked  []string // without the index
	fail   error    // of the index
	index  string   // in place of the right one
}

func newServer() *server {
	s := &server{hashes: map[string]string{}, bodies: map[string]func() io.Reader{}}
	for _, path := range []string{"api/v1", "apis/apps/v1", "apis/shop.example.com/v1beta1", "apis/batch/v1", "version"} {
		s.set(path, "A1", document1(path))
	}
	return s
}

func document1(path string) string {
	return `{"openapi":"3.0.0","info":{"title":"` + path + `"},"paths":{}}`
}

func (s *server) set(path, hash, body string) {
	s.hashes[path], s.bodies[path] = hash, func() io.Reader { return strings.NewReader(body) }
}

func (s *server) get(_ context.Context, path string) (io.ReadCloser, error) {
	if path == root {
		out := index{Paths: map[string]reference{}}
		for path, hash := range s.hashes {
			out.Paths[path] = reference{root + "/" + path + "?hash=" + hash}
		}
		raw, err := json.Marshal(out)
		if s.index != "" {
			raw = []byte(s.index)
		}
		return io.NopCloser(bytes.NewReader(raw)), errors.Join(err, s.fail)
	}
	path, _, _ = strings.Cut(strings.TrimPrefix(path, root+"/"), "?")
	s.asked = append(s.asked, path)
	body := s.bodies[path]()
	if err, ok := body.(failure); ok {
		return nil, err
	}
	return io.NopCloser(body), nil
}

// failure is a body that can't be had.
type failure struct{ error }

func (f failure) Read([]byte) (int, error) { return 0, f.error }

// requested returns the documents that were asked for since the last call.
func (s *server) requested() []string {
	asked := s.asked
	s.asked = nil
	return asked
}

func openMirror(t *testing.T, dir string) *Mirror {
	t.Helper()
	m, err := Open(dir)
	require.NoError(t, err)
	return m
}

func ask(m *Mirror, url string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w
}

// requireServes checks that the mirror serves these documents, by path with the hash, and no others.
func requireServes(t *testing.T, m *Mirror, want map[string]string) {
	t.Helper()
	var got index
	require.NoError(t, json.Unmarshal(ask(m, root).Body.Bytes(), &got))
	urls := map[string]string{}
	for path, hash := range want {
		urls[path] = root + "/" + path + "?hash=" + hash
	}
	served := map[string]string{}
	for path, r := range got.Paths {
		served[path] = r.ServerRelativeURL
		w := ask(m, r.ServerRelativeURL)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, document1(path), w.Body.String())
	}
	require.Equal(t, urls, served)
}

func requireNoTemporary(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"+temporary))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRefresh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "openapi")
	s, m := newServer(), openMirror(t, dir)
	requireServes(t, m, map[string]string{})

	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{core, apps, shop, core}))
	require.ElementsMatch(t, []string{"api/v1", "apis/apps/v1", "apis/shop.example.com/v1beta1"}, s.requested())
	all := map[string]string{"api/v1": "A1", "apis/apps/v1": "A1", "apis/shop.example.com/v1beta1": "A1"}
	requireServes(t, m, all)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if !d.IsDir() {
			require.Equal(t, fs.FileMode(0o600), info.Mode(), path)
		} else {
			require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
		}
		return nil
	}))

	// After a restart, offline, and then with the server again.
	m = openMirror(t, dir)
	requireServes(t, m, all)
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{core, apps, shop}))
	require.Empty(t, s.requested(), "no hash has changed")

	s.hashes["apis/apps/v1"] = "B2"
	all["apis/apps/v1"] = "B2"
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{core, apps, shop}))
	require.Equal(t, []string{"apis/apps/v1"}, s.requested())
	requireServes(t, m, all)
	requireServes(t, openMirror(t, dir), all)

	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps}))
	requireServes(t, m, map[string]string{"apis/apps/v1": "B2"})
	requireNoTemporary(t, dir)
	requireServes(t, openMirror(t, dir), map[string]string{"apis/apps/v1": "B2"})
	require.Empty(t, s.requested())
}

// A document that can't be replaced stays, and so do all others.
func TestRefresh_Fails(t *testing.T) {
	const path = "apis/apps/v1"
	body := func(text string) func(*server) { return func(s *server) { s.set(path, "B2", text) } }
	for _, tc := range []struct {
		name   string
		change func(*server)
		err    string
		others bool // are refreshed
	}{
		{"index is away", func(s *server) { s.fail = errors.New("no route") }, "refresh OpenAPI documents: no route", false},
		{"index is a page", func(s *server) { s.index = "<html>" }, "no index of OpenAPI v3", false},
		{"index is another document", func(s *server) { s.index = `{"kind":"Status"}` }, "no index of OpenAPI v3", false},
		{"index is huge", func(s *server) { s.index = strings.Repeat(" ", maxIndex+1) }, "limit of 16 MiB", false},
		{"not in the index", func(s *server) { delete(s.hashes, path) }, path + ": the server does not have it", true},
		{"no hash", func(s *server) { s.hashes[path] = "" }, path + ": the server's index has no hash", true},
		{"bad hash", func(s *server) { s.hashes[path] = "%22" }, path + ": the server's index has no hash", true},
		{"long hash", func(s *server) { s.hashes[path] = strings.Repeat("A", maxHash+1) }, path + ": the server's index has no hash", true},
		{"document is away", func(s *server) {
			s.set(path, "B2", "")
			s.bodies[path] = func() io.Reader { return failure{errors.New("503")} }
		}, path + ": 503", true},
		{"connection breaks", func(s *server) {
			s.set(path, "B2", "")
			s.bodies[path] = func() io.Reader {
				return io.MultiReader(strings.NewReader(`{"openapi":`), iotest.ErrReader(io.ErrUnexpectedEOF))
			}
		}, path + ": ", true},
		{"breaks at once", func(s *server) {
			s.set(path, "B2", "")
			s.bodies[path] = func() io.Reader { return iotest.ErrReader(errors.New("reset")) }
		}, "reset", true},
		{"empty", body(""), path + ": ", true},
		{"cut", body(`{"openapi":"3.0.0"`), path + ": ", true},
		{"a page", body("<html>"), path + ": the server's answer is no JSON object", true},
		{"a list", body("[]"), path + ": the server's answer is no JSON object", true},
		{"two objects", body("{}{}"), path + ": the server's answer goes on", true},
		{"noise at the end", body("{}\x00"), path + ": the server's answer goes on", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s, m := newServer(), openMirror(t, dir)
			all := []schema.GroupVersion{shop, apps, core}
			require.NoError(t, m.Refresh(t.Context(), s.get, all))
			want := map[string]string{"api/v1": "A1", path: "A1", "apis/shop.example.com/v1beta1": "A1"}
			s.hashes["api/v1"] = "B2"
			if tc.others {
				want["api/v1"] = "B2"
			}
			tc.change(s)
			require.ErrorContains(t, m.Refresh(t.Context(), s.get, all), tc.err)
			requireNoTemporary(t, dir)
			requireServes(t, m, want)
			requireServes(t, openMirror(t, dir), want)

			again := newServer()
			require.NoError(t, m.Refresh(t.Context(), again.get, all))
			requireServes(t, m, map[string]string{"api/v1": "A1", path: "A1", "apis/shop.example.com/v1beta1": "A1"})
		})
	}
}

func TestRefresh_Canceled(t *testing.T) {
	dir := t.TempDir()
	s, m := newServer(), openMirror(t, dir)
	all := []schema.GroupVersion{shop, apps, core}
	require.NoError(t, m.Refresh(t.Context(), s.get, all))
	for path := range s.hashes {
		s.hashes[path] = "B2"
	}
	s.requested()
	ctx, cancel := context.WithCancel(t.Context())
	get := func(ctx context.Context, path string) (io.ReadCloser, error) {
		if path != root {
			cancel()
			_, _ = s.get(ctx, path)
			return nil, ctx.Err()
		}
		return s.get(ctx, path)
	}
	require.ErrorIs(t, m.Refresh(ctx, get, all), context.Canceled)
	require.Len(t, s.requested(), 1, "no further document is asked for")
	requireServes(t, m, map[string]string{"api/v1": "A1", "apis/apps/v1": "A1", "apis/shop.example.com/v1beta1": "A1"})
}

// member is a member of a large JSON object.
var member = `,"` + strings.Repeat("a", 4000) + `":1`

// largeObject returns a JSON object with n members.
func largeObject(n int) io.Reader {
	readers := []io.Reader{strings.NewReader(`{"a":1`)}
	for range n {
		readers = append(readers, strings.NewReader(member))
	}
	return io.MultiReader(append(readers, strings.NewReader("}"))...)
}

// A refresh does not hold a document in memory, and one over the limit is an error.
func TestRefresh_Large(t *testing.T) {
	dir := t.TempDir()
	s, m := newServer(), openMirror(t, dir)
	large := largeObject(16 << 20 / len(member))
	s.bodies["api/v1"] = func() io.Reader { return large }
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps})) // warms up
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps, core}))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))

	if testing.Short() {
		t.Skip("a document over the limit takes seconds under the race detector")
	}
	s.bodies["api/v1"] = func() io.Reader { return largeObject(maxDocument/len(member) + 1) }
	s.hashes["api/v1"] = "B2"
	require.ErrorContains(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{apps, core}), "limit of 64 MiB")
	requireNoTemporary(t, dir)
	require.Contains(t, ask(m, root).Body.String(), `/api/v1?hash=A1"`)
}

// A bad file is left out and fetched again, whether it is found bad at the start or while it is
// served.
func TestBadFiles(t *testing.T) {
	const path = "apis/apps/v1"
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, file string, raw []byte) []byte
	}{
		{"empty", func(*testing.T, string, []byte) []byte { return nil }},
		{"cut", func(_ *testing.T, _ string, raw []byte) []byte { return raw[:len(raw)-9] }},
		{"a bit", func(_ *testing.T, _ string, raw []byte) []byte { raw[len(raw)-12] ^= 4; return raw }},
		{"noise", func(*testing.T, string, []byte) []byte { return []byte("noise") }},
		{"goes on", func(_ *testing.T, _ string, raw []byte) []byte { return append(raw, "noise"...) }},
		{"another document", func(t *testing.T, file string, _ []byte) []byte {
			raw, err := os.ReadFile(filepath.Join(filepath.Dir(file), fileName("api/v1")))
			require.NoError(t, err)
			return raw
		}},
	} {
		for _, restart := range []bool{true, false} {
			name := tc.name + " while it runs"
			if restart {
				name = tc.name + " at the start"
			}
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				s, m := newServer(), openMirror(t, dir)
				both := []schema.GroupVersion{core, apps}
				require.NoError(t, m.Refresh(t.Context(), s.get, both))
				s.requested()
				file := filepath.Join(dir, fileName(path))
				raw, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, tc.damage(t, file, raw), 0o600))
				if restart {
					m = openMirror(t, dir)
				}
				for _, encoding := range []string{"", "gzip"} {
					w := ask(m, root+"/"+path, "Accept-Encoding", encoding)
					require.Equal(t, http.StatusNotFound, w.Code)
					require.Zero(t, w.Body.Len())
				}
				requireServes(t, m, map[string]string{"api/v1": "A1"})
				require.NoError(t, m.Refresh(t.Context(), s.get, both))
				require.Equal(t, []string{path}, s.requested())
				requireServes(t, m, map[string]string{"api/v1": "A1", path: "A1"})
				requireServes(t, openMirror(t, dir), map[string]string{"api/v1": "A1", path: "A1"})
			})
		}
	}
}

// Files of a crash are removed, those of others stay.
func TestOpen_OtherFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"123" + temporary, "notes.txt", "%zz" + suffix, "a%2fb" + suffix} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	s, m := newServer(), openMirror(t, dir)
	require.NoError(t, m.Refresh(t.Context(), s.get, []schema.GroupVersion{core}))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	require.ElementsMatch(t, []string{"notes.txt", "%zz" + suffix, "a%2fb" + suffix, "api%2Fv1" + suffix}, names)

	_, err = Open(filepath.Join(dir, "notes.txt"))
	require.ErrorContains(t, err, "open OpenAPI documents")
}
