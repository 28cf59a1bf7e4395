package durable_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/snapcache/snapcache/informer"
	"github.com/snapcache/snapcache/informer/durable"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// badDir is a directory that can't be used.
type badDir struct {
	name   string
	make   func(t *testing.T, dir string) // dir exists, empty
	reason string
	err    error // that Open returns if the cache is required; nil for one without a sentinel
}

// badDirs are the directories that can't be used on any system. Others have to be mounted.
var badDirs = []badDir{
	{"a file in place of the directory", func(t *testing.T, dir string) {
		require.NoError(t, os.Remove(dir))
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
	}, "not-a-directory", syscall.ENOTDIR},
	{"a directory in place of the file", func(t *testing.T, dir string) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, durable.FileName), 0o700))
	}, "other", nil},
	{"another program's text", func(t *testing.T, dir string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, durable.FileName), []byte("hello"), 0o600))
	}, "foreign", store.ErrForeign},
	{"another program's bbolt file", func(t *testing.T, dir string) { put(t, dir, "other", "k", "v") }, "foreign", store.ErrForeign},
	{"a newer format", func(t *testing.T, dir string) { put(t, dir, "meta", "format", "\x00\x00\x00\x63") }, "newer-format", store.ErrNewerFormat},
	{"another process", func(t *testing.T, dir string) { t.Cleanup(hold(t, dir)) }, "in-use", store.ErrLocked},
	{"another cache of this process", func(t *testing.T, dir string) {
		c := newProgram(t, dir).open(t)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}, "in-use", store.ErrLocked},
}

// TestOpen: in each directory that can't be used, a program runs as without the package, with one warning
// and a metric.
func TestOpen(t *testing.T) { openEach(t, badDirs) }

func openEach(t *testing.T, dirs []badDir) {
	for _, tc := range dirs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.make(t, dir)
			before := content(t, dir)
			p := newProgram(t, dir)
			c := p.open(t)

			warnings := p.log.warnings()
			require.Len(t, warnings, 1, p.log)
			require.Contains(t, warnings[0], "reason="+tc.reason)
			require.Contains(t, warnings[0], "dir="+dir)
			require.Contains(t, warnings[0], "remedy=")
			value, labels, ok := p.gauge(t, "snapcache_store_durable")
			require.True(t, ok)
			require.Zero(t, value)
			require.Equal(t, "path="+filepath.Join(dir, durable.FileName)+" reason="+tc.reason+" ", labels)

			s := newSource(3, func(int) string { return "1" })
			inf, _, stop := s.run(t, c)
			plain := cache.NewSharedIndexInformer(s, nil, 0, nil)
			require.IsType(t, plain, inf, "client-go's")
			waitSynced(t, inf)
			require.Len(t, inf.GetStore().List(), 3)
			require.NoError(t, stop())
			_, _, ok = p.gauge(t, "snapcache_store_durable")
			require.False(t, ok, "after the cache was closed")
			require.Equal(t, before, content(t, dir), "the files are as they were")
		})
	}
}

// TestOpen_Required: each of these directories is an error that names the path and the next step.
func TestOpen_Required(t *testing.T) { requireEach(t, badDirs) }

func requireEach(t *testing.T, dirs []badDir) {
	for _, tc := range dirs {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.make(t, dir)
			p := newProgram(t, dir)
			p.Required = true
			_, err := durable.Open(t.Context(), p.Options)
			var hinted *store.Error
			require.ErrorAs(t, err, &hinted)
			require.NotEmpty(t, hinted.Hint)
			require.Contains(t, err.Error(), dir)
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
			}
			require.Empty(t, p.log.warnings())
			t.Log(err)
		})
	}
}

// content returns the names of the files in dir.
func content(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	return names
}

// TestOpen_Restart: a missing directory is made for this user only, and the next start has the objects
// without a server.
func TestOpen_Restart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	p := newProgram(t, dir)
	inf, _, stop := newSource(3, func(int) string { return "1" }).run(t, p.open(t))
	waitSynced(t, inf)
	value, labels, _ := p.gauge(t, "snapcache_store_durable")
	require.EqualValues(t, 1, value)
	require.Equal(t, "path="+filepath.Join(dir, durable.FileName)+" reason= ", labels)
	_, labels, ok := p.gauge(t, "snapcache_collection_synced")
	require.True(t, ok)
	require.Contains(t, labels, "collection=configmaps")
	require.NoError(t, stop())
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, durable.FileName): 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}

	p = newProgram(t, dir)
	p.Config = &rest.Config{Host: "http://127.0.0.1:1"} // where no server is
	inf, _, stop = newSource(0, nil).run(t, p.open(t))
	waitSynced(t, inf)
	require.Len(t, inf.GetStore().List(), 3)
	require.NoError(t, stop())
	require.Empty(t, p.log.warnings())
}

// TestOpen_WaitsForLock: a process that is just ending is waited for.
func TestOpen_WaitsForLock(t *testing.T) {
	dir := t.TempDir()
	other := newProgram(t, dir).open(t)
	p := newProgram(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := make(chan error, 1)
	go func() {
		closed <- errors.Join(p.log.await(ctx, "waiting for another process"), other.Close())
	}()
	c := p.open(t)
	cancel()
	require.NoError(t, <-closed)
	value, _, _ := p.gauge(t, "snapcache_store_durable")
	require.EqualValues(t, 1, value)
	require.Empty(t, p.log.warnings())
	require.NoError(t, c.Close())
}

// TestOpen_Canceled: a program that is told to end does not wait for the lock.
func TestOpen_Canceled(t *testing.T) {
	dir := t.TempDir()
	other := newProgram(t, dir).open(t)
	defer func() { require.NoError(t, other.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := newProgram(t, dir)
	_, err := durable.Open(ctx, p.Options)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, p.log.warnings())
}

// TestOpen_SetsAside: a corrupt file of the cache, or one of a format that no version reads, is set aside,
// and the cache is durable.
func TestOpen_SetsAside(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		make         func(t *testing.T, dir string)
	}{
		{"cut", "corrupt", func(t *testing.T, dir string) {
			create(t, dir)
			require.NoError(t, os.Truncate(filepath.Join(dir, durable.FileName), 4096))
		}},
		{"no version", "corrupt", func(t *testing.T, dir string) { put(t, dir, "meta", "format", "") }},
		{"a record that a power cut spoilt", "corrupt", spoilRecord},
		{"old format", "old-format", func(t *testing.T, dir string) { put(t, dir, "meta", "format", "\x00\x00\x00\x02") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tc.make(t, dir)
			p := newProgram(t, dir)
			inf, _, stop := newSource(3, func(int) string { return "1" }).run(t, p.open(t))
			waitSynced(t, inf)
			require.Len(t, inf.GetStore().List(), 3)
			require.NoError(t, stop())
			warnings := p.log.warnings()
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], "set aside")
			require.Contains(t, warnings[0], "reason="+tc.reason)
			aside, err := filepath.Glob(filepath.Join(dir, durable.FileName+"."+tc.reason+"-*"))
			require.NoError(t, err)
			require.Len(t, aside, 1)
		})
	}
}

// spoilRecord makes a file as a power cut may leave it: one of its records can't be read.
func spoilRecord(t *testing.T, dir string) {
	inf, _, stop := newSource(3, func(int) string { return "1" }).run(t, newProgram(t, dir).open(t))
	waitSynced(t, inf)
	require.NoError(t, stop())
	path := filepath.Join(dir, durable.FileName)
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
		objects := tx.Bucket([]byte("c")).Bucket([]byte("configmaps")).Bucket([]byte("g1")).Bucket([]byte("objects"))
		key := []byte("shop/c1")
		raw := bytes.Clone(objects.Get(key))
		raw[len(raw)-1] ^= 1
		last := append(binary.BigEndian.AppendUint64(nil, uint64(tx.ID())), 0)
		return errors.Join(objects.Put(key, raw), tx.Bucket([]byte("meta")).Put([]byte("last"), append(last, "another boot"...)))
	}))
	require.NoError(t, db.Close())
	require.Equal(t, bolt.PowerLoss, bolt.LastShutdown(path))
}

// TestOpen_Incomplete: options that no directory can mend are errors.
func TestOpen_Incomplete(t *testing.T) {
	for text, change := range map[string]func(*durable.Options){
		"no Dir":    func(o *durable.Options) { o.Dir = "" },
		"no Config": func(o *durable.Options) { o.Config = nil },
		"address":   func(o *durable.Options) { o.Config = &rest.Config{Host: "://"} },
	} {
		p := newProgram(t, t.TempDir())
		change(&p.Options)
		_, err := durable.Open(t.Context(), p.Options)
		require.ErrorContains(t, err, text)
	}
}

// TestRun: the cache is closed after the program's end, whatever the end is.
func TestRun(t *testing.T) {
	failed := errors.New("the manager failed")
	for _, tc := range []struct {
		name  string
		start func(ctx context.Context) error
		err   error
		panic any
	}{
		{"end", func(context.Context) error { return nil }, nil, nil},
		{"error", func(context.Context) error { return failed }, failed, nil},
		{"cancellation", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, context.Canceled, nil},
		{"panic", func(context.Context) error { panic("boom") }, nil, "boom"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newProgram(t, t.TempDir())
			c := p.open(t)
			path := filepath.Join(p.Dir, durable.FileName)
			ctx, cancel := context.WithCancel(t.Context())
			run := func() error {
				return c.Run(ctx, func(ctx context.Context) error {
					_, err := bolt.Lock(path)
					require.ErrorIs(t, err, store.ErrLocked)
					cancel()
					return tc.start(ctx)
				})
			}
			if tc.panic != nil {
				require.PanicsWithValue(t, tc.panic, func() { _ = run() })
			} else {
				require.Equal(t, tc.err, unwrapped(run()))
			}
			unlock, err := bolt.Lock(path)
			require.NoError(t, err)
			require.NoError(t, unlock())
			require.Equal(t, bolt.Clean, bolt.LastShutdown(path))
			require.NoError(t, c.Close())
		})
	}
}

// unwrapped returns the only error of a joined one.
func unwrapped(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) == 1 {
		return joined.Unwrap()[0]
	}
	return err
}

// TestFactory: a factory works on the file, and in memory if there is none.
func TestFactory(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint(kept), func(t *testing.T) {
			dir := t.TempDir()
			if !kept {
				require.NoError(t, os.Mkdir(filepath.Join(dir, durable.FileName), 0o700))
			}
			c := newProgram(t, dir).open(t)
			_, err := c.Factory(informer.FactoryOptions{})
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
	}
}
