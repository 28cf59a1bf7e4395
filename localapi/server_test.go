package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// A slow reader blocks no one: while it waits, the store accepts writes, the file does not grow,
// and the store can be closed.
func TestSlowReaderBlocksNothing(t *testing.T) {
	for _, way := range []string{"db", "socket"} {
		t.Run(way, func(t *testing.T) {
			db, path := newBolt(t)
			objects := many(2_000, 2_000)
			c := fill(t, db, storetest.Info("configmaps"), true, objects)
			src := FromDB(db, options(t, "bolt"))
			if way == "socket" {
				src = serve(t, src)
			}
			stat := func() int64 {
				info, err := os.Stat(path)
				require.NoError(t, err)
				return info.Size()
			}
			read := 0
			err := src.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
				if read++; read > 1 {
					return nil
				}
				before := stat()
				for i := range 300 {
					o := storetest.Object("ns", fmt.Sprintf("o-%06d", i), "u", fmt.Sprint(100+i), nil, "changed")
					if err := c.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}}); err != nil {
						return err
					}
				}
				require.Less(t, stat()-before, int64(4<<20), "the file must not keep the pages of 300 commits for an open view")
				return db.Close() // waits for open views
			})
			require.NoError(t, err)
			require.Equal(t, len(objects), read, "the slow reader receives its complete state")
		})
	}
}

// The lock on a file is not held while a client reads the answer, so an agent can start meanwhile.
func TestFileLockIsReleased(t *testing.T) {
	db, path := newBolt(t)
	fixture(t, db)
	require.NoError(t, db.Close())
	file, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	opts := options(t, "bolt")
	opts.Read = func() { require.NoError(t, file.Close()) }
	src := FromDB(file, opts)
	tried := false
	require.NoError(t, src.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error {
		if tried {
			return nil
		}
		tried = true
		agents, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		return agents.Close()
	}))
	require.True(t, tried)
}

// failing is a Source whose streams fail after some entries.
type failing struct {
	Source
	after int
	err   error
}

func (f failing) Objects(ctx context.Context, ids []string, q ObjectQuery, each func([]byte) error) error {
	left := f.after
	return f.Source.Objects(ctx, ids, q, func(json []byte) error {
		if left--; left < 0 {
			return f.err
		}
		return each(json)
	})
}

// An answer that failed in the middle never looks complete: the client gets the reason, and a
// client that does not understand the last line sees an aborted connection.
func TestFailureInMidStream(t *testing.T) {
	db := memory.New()
	defer db.Close()
	fill(t, db, storetest.Info("configmaps"), true, many(100, 3_000))
	src := failing{FromDB(db, options(t, "memory")), 50, errors.New("spool: no space left on device")}
	socket := serveHandler(t, Handler(src))

	got, err := objectKeys(NewClient(socket), "configmaps", ObjectQuery{})
	require.EqualError(t, err, "spool: no space left on device")
	require.Len(t, got, 50)

	answer := get(t, socket, "/v1alpha1/collections/configmaps/objects")
	require.ErrorIs(t, answer.err, io.ErrUnexpectedEOF)
	require.Equal(t, 51, bytes.Count(answer.body, []byte("\n")))
}

// A connection that breaks without an error line is an error too.
func TestCutConnection(t *testing.T) {
	socket := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"A","apiVersion":"v1","metadata":{"name":"a"}}`+"\n"+`{"kind":"A","apiVer`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	got, err := objectKeys(NewClient(socket), "a", ObjectQuery{})
	require.Equal(t, []string{"a"}, got)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "truncated")
	require.ErrorContains(t, err, socket)
}

// When the client disconnects, the handler stops before the end of the answer.
func TestClientGoesAway(t *testing.T) {
	db := memory.New()
	defer db.Close()
	fill(t, db, storetest.Info("configmaps"), true, many(5_000, 2_000))
	src := FromDB(db, options(t, "memory"))
	ended := make(chan struct{})
	h := Handler(src)
	client := NewClient(serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	})))
	enough := errors.New("enough")
	err := client.Objects(context.Background(), []string{"configmaps"}, ObjectQuery{}, func(json []byte) error { return enough })
	require.ErrorIs(t, err, enough)
	<-ended
}

// The HTTP status and body of errors are a contract for other clients.
func TestErrorAnswers(t *testing.T) {
	db, _ := newBolt(t)
	fixture(t, db)
	socket := serveHandler(t, Handler(FromDB(db, options(t, "bolt"))))
	for _, want := range []struct {
		name   string
		code   int
		reason string
	}{
		{"pods@shop/objects", 503, "NotSynced"},
		{"pods@shop/keys", 503, "NotSynced"},
		{"pods%40shop/index/namespace", 503, "NotSynced"},
		{"absent/objects", 404, "NoCollection"},
		{"configmaps/index/absent", 404, "NoIndex"},
		{"configmaps/keys?index=absent", 404, "NoIndex"},
		{"configmaps/objects?labelSelector=a+in+", 400, "BadRequest"},
		{"configmaps/objects?key=a/on", 404, "NotFound"},
		{"configmaps/keys?limit=-1", 400, "BadRequest"},
		{"configmaps/keys?limit=all", 400, "BadRequest"},
		{"configmaps/changes", 400, "BadRequest"},
		{"configmaps/changes?since=5&objects=no+", 400, "BadRequest"},
		{"configmaps/changes?sinceTime=yesterday", 400, "BadRequest"},
		{"configmaps/changes?since=4", 410, "TooOld"},
		{"configmaps/changes?since=6", 504, "Ahead"},
		{"configmaps/changes?since=5&follow=true", 501, "NoFollow"},
		{"pods@shop/changes?since=5", 503, "NotSynced"},
		{"absent/changes?since=5", 404, "NoCollection"},
	} {
		answer := get(t, socket, "/v1alpha1/collections/"+want.name)
		require.Equal(t, want.code, answer.code, want.name)
		require.Equal(t, "application/json", answer.contentType)
		var body map[string]string
		require.NoError(t, json.Unmarshal(answer.body, &body))
		require.Equal(t, want.reason, body["reason"], want.name)
		require.NotEmpty(t, body["error"], want.name)
	}
	require.Equal(t, 404, get(t, socket, "/v2/status").code)

	require.NoError(t, db.Close())
	require.Equal(t, 500, get(t, socket, "/v1alpha1/status").code)
	_, err := NewClient(socket).Status(context.Background())
	require.ErrorContains(t, err, store.ErrClosed.Error())
	require.NotErrorIs(t, err, ErrNoAgent)
}

// An object may begin like an error, and may have line breaks between its tokens.
func TestObjectsLikeErrors(t *testing.T) {
	db := memory.New()
	defer db.Close()
	var objects []*object.Object
	for _, raw := range []string{
		`{"error":"x","reason":"Corrupt","metadata":{"name":"a"}}`,
		"{\n  \"kind\": \"A\",\r\n  \"metadata\": {\"name\": \"b\"}\n}",
	} {
		o, err := object.Parse([]byte(raw))
		require.NoError(t, err)
		objects = append(objects, o)
	}
	fill(t, db, storetest.Info("configmaps"), true, objects)
	got, err := objectKeys(serve(t, FromDB(db, Options{})), "configmaps", ObjectQuery{})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, got)
}

func TestClientNoAgent(t *testing.T) {
	dir := t.TempDir()
	_, err := NewClient(filepath.Join(dir, "absent.sock")).Status(context.Background())
	require.ErrorIs(t, err, ErrNoAgent)
	require.EqualError(t, err, "no agent answers on "+dir+"/absent.sock: no such file or directory")

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	_, err = NewClient(filepath.Join(dir, "s")).Status(context.Background())
	require.ErrorIs(t, err, ErrNoAgent)
	require.ErrorContains(t, err, "connection refused")

	socket := serveHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	_, err = NewClient(socket).Status(context.Background())
	require.ErrorIs(t, err, ErrNoAgent)
}

// A server that is not an agent, or has another version, is reported as such.
func TestClientOtherServer(t *testing.T) {
	socket := serveHandler(t, http.NotFoundHandler())
	_, err := NewClient(socket).Status(context.Background())
	require.ErrorContains(t, err, "404 Not Found for /v1alpha1/status: it may have another version")
	require.ErrorIs(t, err, ErrOtherServer)
	socket = serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n")
	}))
	_, err = NewClient(socket).Status(context.Background())
	require.Error(t, err)
	_, err = NewClient(socket).Index(context.Background(), []string{"a"}, "b")
	require.Error(t, err)
	_, err = allKeys(NewClient(socket), "a", KeyQuery{})
	require.Error(t, err)
	_, err = objectKeys(NewClient(socket), "a", ObjectQuery{})
	require.ErrorIs(t, err, object.ErrInvalid)
}

// answer is what an HTTP client receives.
type answer struct {
	code        int
	contentType string
	body        []byte
	err         error // in the middle of the body
}

func get(t *testing.T, socket, path string) answer {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Get("http://agent" + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), body, err}
}
