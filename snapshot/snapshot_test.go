package snapshot_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/snapcache/snapcache/snapshot"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// source is a database with one collection, and a model of its content.
type source struct {
	dir   string
	db    *bolt.DB
	coll  store.Collection
	model *storetest.Model
}

func indexes() []store.Index {
	return []store.Index{store.LabelIndex("app", "app"), store.FieldIndex("payload", "data.payload")}
}

func newSource(t testing.TB) *source {
	s := &source{dir: t.TempDir(), model: storetest.NewModel(storetest.Info("pods"), indexes()...)}
	var err error
	s.db, err = bolt.Open(filepath.Join(s.dir, "cache.db"), bolt.Options{Writer: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.db.Close() })
	s.coll, err = s.db.Open(storetest.Info("pods"), indexes()...)
	require.NoError(t, err)
	return s
}

func (s *source) snapshots() snapshot.Dir {
	return snapshot.Dir{Path: filepath.Join(s.dir, "snapshots"), Writer: "test"}
}

func thing(i, rv int) store.Change {
	labels := map[string]string{"app": []string{"till", "camera", "sensor"}[rv%3]}
	return storetest.Put(storetest.Object("shop", fmt.Sprintf("o-%02d", i), fmt.Sprintf("uid-%d", i), fmt.Sprint(rv), labels, fmt.Sprintf("value %d", rv%5)))
}

func checkpoint(rv int) store.Checkpoint {
	cp := storetest.Checkpoint(rv)
	cp.Cluster, cp.ListReason = "uid:1", store.ReasonExpired
	return cp
}

// list replaces all objects.
func (s *source) list(t require.TestingT, rv int) {
	var changes []store.Change
	for i := range 20 {
		changes = append(changes, thing(i, rv+i))
	}
	cp := checkpoint(rv + 20)
	r, err := s.coll.Replace()
	require.NoError(t, err)
	require.NoError(t, r.Apply(changes))
	require.NoError(t, r.Commit(cp))
	s.model.Replace(storetest.Info("pods"), changes, cp)
}

func (s *source) apply(t require.TestingT, rv int, changes ...store.Change) {
	b := store.Batch{Changes: changes, Checkpoint: checkpoint(rv)}
	require.NoError(t, s.coll.Apply(b))
	s.model.Apply(b)
}

func (s *source) create(t require.TestingT, at time.Time) *snapshot.Snapshot {
	x, err := s.snapshots().Create(context.Background(), s.db, at, nil)
	require.NoError(t, err)
	return x
}

// requireModel checks that the content of a snapshot equals the model.
func requireModel(t storetest.T, path string, m *storetest.Model) {
	db, manifest, err := snapshot.Open(context.Background(), path, bolt.Keyring{}, nil)
	require.NoError(t, err)
	defer db.Close()
	v, err := db.View("pods")
	require.NoError(t, err)
	defer v.Close()
	m.Equal(t, v)
	c := manifest.Collections[0]
	state := m.State()
	require.Equal(t, []any{state.RV, state.Cluster, state.Synced, state.Count, state.Bytes}, []any{c.ResourceVersion, c.Cluster, c.Synced, c.Objects, c.Bytes})
	require.True(t, state.Proven().Equal(c.Proven))
}

func TestCreate(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	s.apply(t, 50, thing(3, 45), store.Change{Key: "shop/o-04", RV: "46"}) // not durable yet
	var steps []snapshot.Step
	x, err := s.snapshots().Create(t.Context(), s.db, now, func(step snapshot.Step, done, total int64) {
		require.LessOrEqual(t, done, total)
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
	})
	require.NoError(t, err)
	require.Contains(t, steps, snapshot.StepCompress)
	require.Equal(t, "20260304T050607.000Z.snap", x.Name)
	require.Equal(t, "test", x.Manifest.Writer)
	require.Equal(t, now, x.Manifest.Created)
	requireModel(t, x.Path, s.model)

	dir, err := os.Stat(filepath.Dir(x.Path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), dir.Mode().Perm())
	file, err := os.Stat(x.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), file.Mode().Perm())
	require.Equal(t, file.Size(), x.Bytes)

	report, m, err := snapshot.Check(t.Context(), x.Path, bolt.Keyring{}, nil)
	require.NoError(t, err)
	require.True(t, report.OK(), report.Problems)
	require.Equal(t, x.Manifest, m)
	list, err := s.snapshots().List()
	require.NoError(t, err)
	require.Equal(t, []snapshot.Snapshot{*x}, list)
	requireOnly(t, s.snapshots(), x.Name)
}

// requireOnly checks that a directory contains exactly the snapshots of these names.
func requireOnly(t require.TestingT, d snapshot.Dir, names ...string) {
	entries, err := os.ReadDir(d.Path)
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	require.Equal(t, names, found)
}

// A snapshot of a database that is being written is one of the states it had.
func TestCreateBesideWriter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "snapshot")
		require.NoError(rt, err)
		defer os.RemoveAll(dir)
		s := &source{dir: dir, model: storetest.NewModel(storetest.Info("pods"), indexes()...)}
		s.db, err = bolt.Open(filepath.Join(dir, "cache.db"), bolt.Options{FlushInterval: time.Millisecond})
		require.NoError(rt, err)
		defer s.db.Close()
		s.coll, err = s.db.Open(storetest.Info("pods"), indexes()...)
		require.NoError(rt, err)
		s.list(rt, 1)
		script := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 40).Draw(rt, "script")
		models := map[string]*storetest.Model{s.model.Checkpoint.RV: s.model.Clone()}
		var wg sync.WaitGroup
		wg.Go(func() {
			rv := 100
			for _, i := range script {
				switch {
				case i == 30:
					s.list(rt, rv)
				case i >= 20:
					s.apply(rt, rv+1, store.Change{Key: fmt.Sprintf("shop/o-%02d", i-20), RV: fmt.Sprint(rv)})
				default:
					s.apply(rt, rv+1, thing(i, rv))
				}
				models[s.model.Checkpoint.RV] = s.model.Clone()
				rv += 100
			}
		})
		var made []*snapshot.Snapshot
		for range 3 {
			made = append(made, s.create(rt, now))
		}
		wg.Wait()
		for _, x := range made {
			m := models[x.Manifest.Collections[0].ResourceVersion]
			require.NotNil(rt, m, "the database never had a state at %s", x.Manifest.Collections[0].ResourceVersion)
			requireModel(rt, x.Path, m)
		}
	})
}

// Any flipped bit, any truncation and any trailing byte is noticed before the snapshot is used.
func TestCorruptionIsDetected(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	whole, err := os.ReadFile(s.create(t, now).Path)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.snap")
	refused := func(b []byte, what string, args ...any) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, b, 0o600))
		_, err := snapshot.Unpack(t.Context(), path, io.Discard, nil)
		require.Error(t, err, what, args)
		verdict := errors.As(err, new(*store.CorruptionError)) || errors.Is(err, snapshot.ErrForeign) || errors.Is(err, store.ErrNewerFormat)
		require.True(t, verdict, "%s %v: %v", what, args, err)
		require.Error(t, snapshot.Intact(t.Context(), path), what, args)
	}
	head := 16 + int(binary.BigEndian.Uint32(whole[12:])) + 4
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(whole); i += step {
		b := append([]byte(nil), whole...)
		b[i] ^= 1 << (i % 8)
		refused(b, "flipped", i)
		if i < head { // the header, which List reads
			require.NoError(t, os.WriteFile(path, b, 0o600))
			_, _, err := snapshot.ReadManifest(path)
			require.Error(t, err, "flipped %d", i)
		}
		refused(whole[:i], "cut", i)
	}
	refused(whole[:len(whole)-1], "truncated by one byte")
	refused(append(append([]byte(nil), whole...), 0), "longer")
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	require.NoError(t, snapshot.Intact(t.Context(), path))
	requireModel(t, path, s.model)
}

func TestVerdicts(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	whole, err := os.ReadFile(s.create(t, now).Path)
	require.NoError(t, err)
	db, err := os.ReadFile(filepath.Join(s.dir, "cache.db"))
	require.NoError(t, err)
	newer := append([]byte(nil), whole...)
	binary.BigEndian.PutUint32(newer[8:], snapshot.Format+1)
	long := append([]byte(nil), whole...)
	binary.BigEndian.PutUint32(long[12:], 1<<31)
	path := filepath.Join(t.TempDir(), "x.snap")
	for _, tc := range []struct {
		name    string
		content []byte
		is      error
		corrupt bool
		text    string
	}{
		{name: "empty", content: []byte{}, is: snapshot.ErrForeign, text: "not a snapcache snapshot"},
		{name: "text", content: []byte("hello"), is: snapshot.ErrForeign},
		{name: "a database", content: db, is: snapshot.ErrForeign},
		{name: "newer", content: newer, is: store.ErrNewerFormat, text: "2, this version reads up to 1"},
		{name: "cut", content: whole[:len(whole)/2], corrupt: true, text: path + " is corrupt"},
		{name: "head only", content: whole[:9], corrupt: true, text: "truncated"},
		{name: "too long", content: long, corrupt: true, text: "the length of its manifest is out of range"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, tc.content, 0o600))
			_, _, err := snapshot.Open(t.Context(), path, bolt.Keyring{}, nil)
			require.Error(t, err)
			if tc.is != nil {
				require.ErrorIs(t, err, tc.is)
			}
			require.Equal(t, tc.corrupt, errors.As(err, new(*store.CorruptionError)))
			require.ErrorContains(t, err, tc.text)
			entries, err := os.ReadDir(filepath.Dir(path))
			require.NoError(t, err)
			require.Len(t, entries, 1, "temporary files are removed")
		})
	}
	_, _, err = snapshot.Open(t.Context(), filepath.Join(t.TempDir(), "none.snap"), bolt.Keyring{}, nil)
	require.ErrorIs(t, err, snapshot.ErrNoSnapshot)
	_, _, err = snapshot.Open(t.Context(), t.TempDir(), bolt.Keyring{}, nil)
	require.ErrorContains(t, err, "not a regular file")
}

// A small file whose manifest claims a large database does not fill the disk.
func TestUnpackIsBounded(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	x := s.create(t, now)
	whole, err := os.ReadFile(x.Path)
	require.NoError(t, err)
	require.Less(t, int64(len(whole)), x.Manifest.Database.Bytes/4)
	m := *x.Manifest
	m.Database.Bytes = 4096
	path := filepath.Join(t.TempDir(), "x.snap")
	require.NoError(t, os.WriteFile(path, snapshot.Rehead(t, whole, &m), 0o600))
	var n counter
	_, err = snapshot.Unpack(t.Context(), path, &n, nil)
	require.ErrorContains(t, err, "does not have the 4096 bytes")
	require.LessOrEqual(t, int64(n), int64(4097))
}

// An error of reading that the decompression meets is that error, and no corruption: an older snapshot
// would fail too.
func TestUnpack_ReadError_IsNotCorruption(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	path := s.create(t, now).Path
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	head := 16 + int64(binary.BigEndian.Uint32(whole[12:])) + 4
	ctx, cancel := context.WithCancel(t.Context())
	_, err = snapshot.Unpack(ctx, path, io.Discard, func(_ snapshot.Step, done, _ int64) {
		if done > head && done < int64(len(whole)) {
			cancel()
		}
	})
	require.Error(t, ctx.Err(), "the reading was not interrupted")
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, errors.As(err, new(*store.CorruptionError)), "%v", err)
}

// A disk without space is no corruption either.
func TestUnpack_WriteError_IsNotCorruption(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	path := s.create(t, now).Path
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	_, err = snapshot.Unpack(t.Context(), path, full, nil)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.False(t, errors.As(err, new(*store.CorruptionError)), "%v", err)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// died is the panic with which a test ends a process.
type died struct{}

// If the process ends between any two steps, the directory has the old snapshots, or those and a
// complete new one, and the next Create removes the rest.
func TestCrashAtEachStep(t *testing.T) {
	var steps []string
	s := newSource(t)
	s.list(t, 1)
	s.create(t, now)
	d := s.snapshots().WithStep(func(step string) { steps = append(steps, step) })
	_, err := d.Create(t.Context(), s.db, now.Add(time.Second), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"copied", "created", "written", "synced", "renamed"}, steps)
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			s := newSource(t)
			s.list(t, 1)
			old := s.create(t, now)
			func() {
				defer func() { require.Equal(t, died{}, recover()) }()
				_, _ = s.snapshots().WithStep(func(at string) {
					if at == step {
						panic(died{})
					}
				}).Create(t.Context(), s.db, now.Add(time.Second), nil)
			}()
			list, err := s.snapshots().List()
			require.NoError(t, err)
			want := 1
			if step == "renamed" {
				want = 2
			}
			require.Len(t, list, want)
			for _, x := range list {
				require.NoError(t, x.Err)
				require.NoError(t, snapshot.Intact(t.Context(), x.Path))
				requireModel(t, x.Path, s.model)
			}
			require.Equal(t, old.Name, list[0].Name)
			// A power cut may leave any content in the unfinished one.
			temps, err := filepath.Glob(filepath.Join(s.snapshots().Path, ".*"))
			require.NoError(t, err)
			if step == "created" || step == "written" || step == "synced" {
				require.Len(t, temps, 1)
			}
			require.NoError(t, os.Mkdir(filepath.Join(s.snapshots().Path, ".copy-1"), 0o700))
			_, err = s.snapshots().Prune(t.Context(), 0, 0, 0, now)
			require.NoError(t, err)
			temps, err = filepath.Glob(filepath.Join(s.snapshots().Path, ".*"))
			require.NoError(t, err)
			require.Empty(t, temps)
		})
	}
}

// A failed Create leaves no file behind.
func TestCreateFails(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.snapshots().Create(ctx, s.db, now, func(step snapshot.Step, _, _ int64) {
		if step == snapshot.StepCompress {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	requireOnly(t, s.snapshots())

	unlock, err := s.snapshots().Lock()
	require.NoError(t, err)
	_, err = s.snapshots().Create(t.Context(), s.db, now, nil)
	require.ErrorIs(t, err, snapshot.ErrBusy)
	_, err = s.snapshots().Prune(t.Context(), 1, 0, 0, now)
	require.ErrorIs(t, err, snapshot.ErrBusy)
	require.NoError(t, unlock())
	s.create(t, now)

	file := snapshot.Dir{Path: filepath.Join(s.dir, "cache.db", "x")}
	_, err = file.Create(t.Context(), s.db, now, nil)
	require.ErrorContains(t, err, "create snapshot directory")
}

func TestNamesSortByTime(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	var names []string
	for _, at := range []time.Time{now, now, now.Add(time.Hour), now.Add(-time.Hour), now.Add(2 * time.Hour)} {
		names = append(names, s.create(t, at).Name)
	}
	require.IsIncreasing(t, names)
	require.Equal(t, "20260304T050607.001Z.snap", names[1])
	require.Equal(t, "20260304T060607.001Z.snap", names[3], "the name sorts last although the clock was set back")
}

// TestPrune_WrongClock: a wrong clock, now or when snapshots were made, removes none of them early, and keeps none for
// good.
func TestPrune_WrongClock(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, tc := range []struct {
		name string
		made []time.Duration // when, since now, oldest first
		left []int
	}{
		{"right", []time.Duration{-4 * day, -3 * day, -2 * day, -1 * day, 0}, []int{0, 1, 2, 3, 4}},
		{"right, and one is too old", []time.Duration{-5 * day, -4 * day, -3 * day, -2 * day, -1 * day, 0}, []int{1, 2, 3, 4, 5}},
		{"two hours ahead", []time.Duration{-3*day - 2*time.Hour, -2*day - 2*time.Hour, -1*day - 2*time.Hour, 0}, []int{0, 1, 2, 3}},
		{"14 years ahead", []time.Duration{-14*year - 2*day, -14*year - 1*day, -14 * year, -1, 0}, []int{0, 1, 2, 3, 4}},
		{"26 years behind", []time.Duration{26*year - 2*day, 26*year - 1*day, 26 * year, 0}, []int{0, 1, 2, 3}},
		{"right again", []time.Duration{-2 * day, -1 * day, 14 * year, 0}, []int{0, 1, 2, 3}},
		{
			"right again for long", []time.Duration{-7 * day, -6 * day, 14 * year, -4 * day, -3 * day, -2 * day, -1 * day, 0},
			[]int{2, 3, 4, 5, 6, 7},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSource(t)
			s.list(t, 1)
			var names, want []string
			for _, at := range tc.made {
				s.create(t, now.Add(at))
				own, err := s.snapshots().Own()
				require.NoError(t, err)
				names = append(names, own[0].Name)
			}
			for _, i := range tc.left {
				want = append(want, names[i])
			}
			_, err := s.snapshots().Prune(t.Context(), 0, 3*day, day, now)
			require.NoError(t, err)
			requireOnly(t, s.snapshots(), want...)
		})
	}
}

func TestPrune(t *testing.T) {
	hour := func(h int) string {
		return now.Add(time.Duration(h)*time.Hour).Format("20060102T150405.000Z") + ".snap"
	}
	for _, tc := range []struct {
		name   string
		keep   int
		maxAge time.Duration
		spoil  []int // hours
		left   []int
	}{
		{name: "no limit", left: []int{0, 1, 2, 3}},
		{name: "by count", keep: 2, left: []int{2, 3}},
		{name: "by age", maxAge: 9 * time.Hour, left: []int{1, 2, 3}},
		{name: "all are too old", maxAge: time.Hour, left: []int{3}},
		{name: "the newest is corrupt", keep: 1, spoil: []int{3}, left: []int{2, 3}},
		{name: "only one is good", keep: 1, maxAge: time.Hour, spoil: []int{1, 2, 3}, left: []int{0}},
		{name: "none is good", keep: 1, spoil: []int{0, 1, 2, 3}, left: []int{3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSource(t)
			s.list(t, 1)
			for h := range 4 {
				s.create(t, now.Add(time.Duration(h)*time.Hour))
			}
			for i, h := range tc.spoil {
				path := filepath.Join(s.snapshots().Path, hour(h))
				info, err := os.Stat(path)
				require.NoError(t, err)
				require.NoError(t, os.Truncate(path, []int64{info.Size() - 1, 3}[i%2]))
			}
			// Snapshots that were not made here are not removed.
			require.NoError(t, os.WriteFile(filepath.Join(s.snapshots().Path, "seed.snap"), nil, 0o600))
			var want []string
			for _, h := range tc.left {
				want = append(want, hour(h))
			}
			removed, err := s.snapshots().Prune(t.Context(), tc.keep, tc.maxAge, 0, now.Add(10*time.Hour))
			require.NoError(t, err)
			require.Len(t, removed, 4-len(want))
			requireOnly(t, s.snapshots(), append(want, "seed.snap")...)
		})
	}
	removed, err := snapshot.Dir{Path: filepath.Join(t.TempDir(), "none")}.Prune(t.Context(), 1, 0, 0, now)
	require.NoError(t, err)
	require.Empty(t, removed)
}

func TestFind(t *testing.T) {
	s := newSource(t)
	s.list(t, 1)
	x := s.create(t, now)
	d := s.snapshots()
	require.Equal(t, x.Path, d.Find(x.Name))
	require.Equal(t, x.Path, d.Find(strings.TrimSuffix(x.Name, ".snap")))
	require.Equal(t, x.Path, d.Find(x.Path))
	require.Equal(t, "none", d.Find("none"))
	require.Equal(t, "./"+x.Name, d.Find("./"+x.Name))
}
