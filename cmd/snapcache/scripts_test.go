package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	bbolt "go.etcd.io/bbolt"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/localapi"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
)

// content is a collection that mkdb writes.
type content struct {
	store.Info
	Synced  bool              `json:"synced"`
	RV      string            `json:"rv"`
	Skipped bool              `json:"skipped"`
	Reason  store.Reason      `json:"reason"`  // of the list; empty for the first one
	Age     string            `json:"age"`     // since it was proven, such as "3h12m"
	Labels  []string          `json:"labels"`  // indexed by
	Objects []json.RawMessage `json:"objects"` // without apiVersion and kind
	Then    []change          `json:"then"`    // changes after the list

	Description store.Description `json:"description"`
}

// change is a batch of changes.
type change struct {
	RV      string            `json:"rv"`
	Age     string            `json:"age"`
	Objects []json.RawMessage `json:"objects"`
	Deleted map[string]string `json:"deleted"` // resourceVersions by key
}

// makeDB: mkdb FILE CONTENT creates a database. CONTENT is YAML, a list of content.
func makeDB(ts *testscript.TestScript, _ bool, args []string) {
	var contents []content
	ts.Check(yaml.UnmarshalStrict([]byte(ts.ReadFile(args[1])), &contents))
	db, err := bolt.Open(ts.MkAbs(args[0]), bolt.Options{})
	ts.Check(err)
	for _, c := range contents {
		ts.Check(c.put(db))
	}
	ts.Check(db.Close())
}

func (c content) put(db store.DB) error {
	var indexes []store.Index
	for _, l := range c.Labels {
		indexes = append(indexes, store.LabelIndex(l, l))
	}
	opened, err := db.Open(c.Info, indexes...)
	if err != nil {
		return err
	}
	defer opened.Close()
	if err := opened.Describe(c.Description); err != nil {
		return err
	}
	changes, err := c.changes(c.Objects)
	if err != nil {
		return err
	}
	if !c.Synced {
		return opened.Apply(store.Batch{Changes: changes})
	}
	age, err := time.ParseDuration(c.Age)
	if err != nil {
		return err
	}
	r, err := opened.Replace()
	if err != nil {
		return err
	}
	cp := store.Checkpoint{
		RV: c.RV, Cluster: "uid:1", LastEvent: time.Now().Add(-age), LastList: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ListReason: cmp.Or(c.Reason, store.ReasonInitial), Skipped: c.Skipped,
	}
	if err := errors.Join(r.Apply(changes), r.Commit(cp)); err != nil {
		return err
	}
	for _, next := range c.Then {
		changes, err := c.changes(next.Objects)
		if err != nil {
			return err
		}
		for key, rv := range next.Deleted {
			changes = append(changes, store.Change{Key: key, RV: rv})
		}
		if age, err = time.ParseDuration(next.Age); err != nil {
			return err
		}
		cp.RV, cp.LastEvent = next.RV, time.Now().Add(-age)
		if err := opened.Apply(store.Batch{Changes: changes, Checkpoint: cp}); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the changes that store objects.
func (c content) changes(objects []json.RawMessage) ([]store.Change, error) {
	var changes []store.Change
	for _, raw := range objects {
		o, err := object.Parse(object.WithType(raw, c.APIVersion(), c.Kind))
		if err != nil {
			return nil, err
		}
		changes = append(changes, store.Change{Key: o.Key(), Object: o})
	}
	return changes, nil
}

// spoil: spoil FILE COLLECTION KEY... flips a bit of records.
func spoil(ts *testscript.TestScript, _ bool, args []string) {
	db, err := bbolt.Open(ts.MkAbs(args[0]), 0o600, nil)
	ts.Check(err)
	ts.Check(db.Update(newest(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("c")).Bucket([]byte(args[1]))
		return c.ForEachBucket(func(generation []byte) error {
			objects := c.Bucket(generation).Bucket([]byte("objects"))
			for _, key := range args[2:] {
				record := append([]byte(nil), objects.Get([]byte(key))...)
				record[len(record)-1] ^= 1
				if err := objects.Put([]byte(key), record); err != nil {
					return err
				}
			}
			return nil
		})
	})))
	ts.Check(db.Close())
}

// newest makes a change outside the store look like part of its newest transaction.
func newest(fn func(*bbolt.Tx) error) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		last := binary.BigEndian.AppendUint64(nil, uint64(tx.ID()))
		return errors.Join(fn(tx), meta.Put([]byte("last"), append(last, meta.Get([]byte("last"))[8:]...)))
	}
}

// editDB: edit FILE BUCKET/... KEY [VALUE] sets or deletes a key outside the store. In KEY and
// VALUE \0 is a zero byte.
func editDB(ts *testscript.TestScript, _ bool, args []string) {
	db, err := bbolt.Open(ts.MkAbs(args[0]), 0o600, nil)
	ts.Check(err)
	ts.Check(db.Update(newest(func(tx *bbolt.Tx) error {
		names := strings.Split(args[1], "/")
		b := tx.Bucket([]byte(names[0]))
		for _, name := range names[1:] {
			b = b.Bucket([]byte(name))
		}
		bytes := func(s string) []byte { return []byte(strings.ReplaceAll(s, `\0`, "\x00")) }
		if len(args) < 4 {
			return b.Delete(bytes(args[2]))
		}
		return b.Put(bytes(args[2]), bytes(args[3]))
	})))
	ts.Check(db.Close())
}

// sealDB: seal FILE COLLECTION KEY CONTENT sets one of a collection's checksummed values, with a
// valid checksum.
func sealDB(ts *testscript.TestScript, neg bool, args []string) {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum([]byte(args[1]+"\x00"+args[2]+"\x00"+args[3]), table)
	value := string(binary.LittleEndian.AppendUint32(nil, sum)) + args[3]
	editDB(ts, neg, []string{args[0], "c/" + args[1], args[2], value})
}

// bloatDB: bloat FILE grows a database by data that it does not keep.
func bloatDB(ts *testscript.TestScript, _ bool, args []string) {
	db, err := bbolt.Open(ts.MkAbs(args[0]), 0o600, nil)
	ts.Check(err)
	ts.Check(db.Update(newest(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("bloat"))
		if err != nil {
			return err
		}
		return b.Put([]byte("bloat"), make([]byte, 4<<20))
	})))
	ts.Check(db.Update(newest(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("bloat")) })))
	ts.Check(db.Close())
}

// lockDB: lock FILE keeps a database open as an agent does, until the script ends.
func lockDB(ts *testscript.TestScript, _ bool, args []string) {
	db, err := bolt.Open(ts.MkAbs(args[0]), bolt.Options{})
	ts.Check(err)
	ts.Defer(func() { ts.Check(db.Close()) })
}

// serve: serve FILE SOCKET [STATUS] serves a database as an agent does, until the script ends.
// STATUS is YAML: a status that overrides the database's, with its collections by ID.
func serve(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	db, err := bolt.Open(path, bolt.Options{})
	ts.Check(err)
	var over struct {
		Agent       *localapi.AgentStatus      `json:"agent"`
		Collections map[string]json.RawMessage `json:"collections"`
	}
	if len(args) > 2 {
		ts.Check(yaml.UnmarshalStrict([]byte(ts.ReadFile(args[2])), &over))
	}
	src := localapi.FromDB(db, localapi.Options{StoreType: "bolt", Verdict: "opened", Status: func(s *localapi.Status) {
		s.Agent = over.Agent
		for i := range s.Collections {
			if raw := over.Collections[s.Collections[i].ID]; raw != nil {
				_ = json.Unmarshal(raw, &s.Collections[i]) // a mismatch is visible in the output
			}
		}
	}})
	listener, err := files.ListenUnix(ts.MkAbs(args[1]))
	ts.Check(err)
	mux := http.NewServeMux()
	mux.Handle("/", localapi.Handler(src))
	mux.Handle(localapi.SnapshotPattern, localapi.SnapshotHandler(func(ctx context.Context, progress func(string, int64, int64)) (*localapi.Snapshot, error) {
		d := snapshot.Dir{Path: filepath.Join(filepath.Dir(path), "snapshots")}
		x, err := d.Create(ctx, db, time.Now(), func(step snapshot.Step, done, total int64) { progress(string(step), done, total) })
		if err != nil {
			return nil, err
		}
		return &localapi.Snapshot{Name: x.Name, Path: x.Path, Bytes: x.Bytes, Objects: x.Manifest.Objects()}, nil
	}))
	server := &http.Server{Handler: mux}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		ts.Check(server.Close())
		<-done
		ts.Check(db.Close())
	})
}

// code: code N COMMAND... runs a command that must exit with N.
func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
