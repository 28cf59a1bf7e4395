package bolt_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/bolt"
	"github.com/snapcache/snapcache/store/storetest"
)

// The databases testdata/previous-*.db.gz were written by the code of commit ec25953: the revision
// before the store was split into layers. They are never made again: they hold this code to files
// that other code wrote. Both have the collections
//
//   - pods@edge, written through package bolt: previousList in one replacement, then
//     previousBatches, each of them flushed;
//   - secrets, opened and never synced;
//   - pods, written by an informer. See TestPreviousVersionResumes in package informer.
//
// previous-clean.db.gz was closed after the first batch. previous-open.db.gz is the same file while
// in use: the later batches are in its journal, which was never folded. In both the id of the
// machine's start is replaced, so that they come from another machine everywhere.
var previousFiles = []struct {
	name    string
	batches int // of pods@edge
	journal int // entries
}{
	{"testdata/previous-clean.db.gz", 1, 0},
	{"testdata/previous-open.db.gz", 4, 5},
}

var previousTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func previousPod(i, uid, rv int) *object.Object {
	return mustParse(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"till-%03d","namespace":"shop-%d","uid":"0000-%05d",`+
		`"resourceVersion":"%d","labels":{"app":%q}},"spec":{"nodeName":"edge-%d","containers":[{"name":"main","image":"registry.example/till:%d.%d"}]},`+
		`"status":{"phase":"Running","podIP":"10.0.%d.%d"}}`, i, i%3, uid, rv, []string{"till", "camera", "scale"}[i%3], i%7, rv/100, i, uid%256, i))
}

func previousList() (list []store.Change, listed store.Checkpoint) {
	for i := range 120 {
		list = append(list, storetest.Put(previousPod(i, i, 1000+i)))
	}
	return list, store.Checkpoint{RV: "1200", Cluster: "uid:1111-2222", ListReason: "initial", LastList: previousTime}
}

func previousBatches() []store.Batch {
	at := func(rv string, seconds int) store.Checkpoint {
		_, cp := previousList()
		cp.RV, cp.LastEvent = rv, previousTime.Add(time.Duration(seconds)*time.Second)
		return cp
	}
	bookmark := at("1230", 3)
	bookmark.LastBookmark = previousTime.Add(4 * time.Second)
	return []store.Batch{
		{Checkpoint: at("1203", 1), Changes: []store.Change{
			storetest.Put(previousPod(5, 5, 1201)), storetest.Put(previousPod(200, 200, 1202)), {Key: "shop-0/till-003", RV: "1203"},
		}},
		{Checkpoint: at("1213", 2), Changes: []store.Change{
			storetest.Put(previousPod(3, 300, 1211)), storetest.Put(previousPod(6, 6, 1212)), {Key: "shop-1/till-007", RV: "1213"},
		}},
		{Checkpoint: at("1221", 3), Changes: []store.Change{storetest.Put(previousPod(6, 6, 1221))}},
		{Checkpoint: bookmark},
	}
}

// previousModels returns the expected collections of a file with the first n batches.
func previousModels(n int) []*storetest.Model {
	pods := storetest.NewModel(store.Info{
		ID: "pods@edge", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
		LabelSelector: "tier=edge", Transform: "metadata.managedFields",
	}, store.LabelIndex("app", "app"), store.FieldIndex("node", "spec.nodeName"))
	list, listed := previousList()
	pods.Replace(pods.Info, list, listed)
	for _, b := range previousBatches()[:n] {
		pods.Apply(b)
	}
	return []*storetest.Model{pods, storetest.NewModel(store.Info{ID: "secrets", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true})}
}

// TestPreviousVersion opens files of the version before: they have exactly the objects, indexes,
// history and checkpoint that were written, and accept changes.
func TestPreviousVersion(t *testing.T) {
	for _, file := range previousFiles {
		t.Run(file.name, func(t *testing.T) {
			path := storetest.Gunzip(t, file.name)
			report := checkReport(t, path, bolt.Keyring{})
			require.Empty(t, report.Problems)
			require.EqualValues(t, file.journal, report.JournalEntries)
			require.Equal(t, "previous", report.Writer)

			models := previousModels(file.batches)
			// The clock stands soon after the last write: the histories are not trimmed.
			opts := bolt.Options{Clock: clocktesting.NewFakeClock(previousTime.Add(time.Minute))}
			check := func(db *bolt.DB) {
				t.Helper()
				require.NoError(t, db.JournalCorruption())
				for _, m := range models {
					v := view(t, db, m.Info.ID)
					m.Equal(t, v)
					v.Close()
				}
			}
			readOnly := opts
			readOnly.ReadOnly = true
			db := openDB(t, path, readOnly)
			infos, err := db.Collections()
			require.NoError(t, err)
			require.Len(t, infos, 3)
			check(db)
			require.NoError(t, db.Close())

			db = openDB(t, path, opts)
			pods := openCollection(t, db, models[0].Info, models[0].Indexes...)
			v, err := pods.View()
			require.NoError(t, err)
			require.ElementsMatch(t, []string{"app", "node"}, v.Indexes(), "the indexes are not built again")
			v.Close()
			check(db)
			for range 3 {
				next := models[0].Checkpoint
				next.RV += "0"
				b := store.Batch{Checkpoint: next, Changes: []store.Change{
					storetest.Put(previousPod(6, 6, 100_000)), storetest.Put(previousPod(300, 300, 100_001)), storetest.Delete("shop-2/till-008"),
				}}
				require.NoError(t, pods.Apply(b))
				models[0].Apply(b)
				check(db)
				require.NoError(t, db.Fold())
				check(db)
			}
			_, _, err = db.Compact(t.Context())
			require.NoError(t, err)
			check(db)
			require.NoError(t, db.Close())
			db = openDB(t, path, opts)
			check(db)
			require.NoError(t, db.Close())
			report = checkReport(t, path, bolt.Keyring{})
			require.Empty(t, report.Problems)
		})
	}
}

// TestPreviousVersionCrashes builds the images that a power cut may leave while this version takes over a file of the
// version before: opens it, appends to its journal, folds that in slices, and closes it. Each has the state before the
// commit or after it.
func TestPreviousVersionCrashes(t *testing.T) {
	for _, file := range previousFiles {
		t.Run(file.name, func(t *testing.T) {
			t.Parallel()
			path := storetest.Gunzip(t, file.name)
			pods := previousModels(file.batches)[0]
			opts := bolt.Options{Clock: clocktesting.NewFakeClock(previousTime.Add(time.Minute)), FlushInterval: time.Hour}
			x := &images{
				t: t, path: filepath.Join(t.TempDir(), "image.db"), opts: opts, random: rand.New(rand.NewPCG(3, 3)),
				old: pods, new: pods,
			}
			before := readFile(t, path)
			image := func(name string, several bool) {
				after := readFile(t, path)
				x.new = pods
				x.commit(name, before, after, several)
				before, x.old = after, pods.Clone()
			}
			db, err := bolt.OpenByHand(path, opts)
			require.NoError(t, err)
			c := openCollection(t, db, pods.Info, pods.Indexes...)
			pods.Open(pods.Info, pods.Indexes...)
			image("open", true)
			next := pods.Checkpoint
			next.RV = "100001"
			b := store.Batch{Checkpoint: next, Changes: []store.Change{
				storetest.Put(previousPod(6, 6, 100_000)), storetest.Put(previousPod(300, 300, 100_001)), storetest.Delete("shop-2/till-008"),
			}}
			require.NoError(t, c.Apply(b))
			x.old = pods.Clone()
			pods.Apply(b)
			require.NoError(t, db.Flush())
			image("flush", false)
			slices := 1
			require.NoError(t, db.FoldSlices(4<<10, func() bool {
				if testing.Short() && slices%4 > 0 {
					before = readFile(t, path)
				} else {
					image(fmt.Sprintf("slice %d", slices), false)
				}
				slices++
				return true
			}))
			image("fold", false)
			require.Greater(t, slices, 4)
			require.NoError(t, db.Close())
			image("close", true)
			t.Logf("%d images of an honest disk; %d of a lying one, of which %d were refused", x.honest, x.lying, x.refused)
			require.Greater(t, x.honest, 50)
		})
	}
}
