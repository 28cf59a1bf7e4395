package memory_test

import (
	"runtime"
	"strconv"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/store/memory"
	"github.com/snapcache/snapcache/store/storetest"
)

// TestReplacedObjectsAreReleased checks that what a view has ordered does not keep objects in memory
// that were replaced since, although no other view follows.
func TestReplacedObjectsAreReleased(t *testing.T) {
	const objects = 5000
	db := memory.New()
	defer func() { require.NoError(t, db.Close()) }()
	c, err := db.Open(storetest.Info("test"))
	require.NoError(t, err)
	var first []weak.Pointer[object.Object]
	put := func(rv string, note func(*object.Object)) {
		for i := range objects {
			o := storetest.Object("ns", strconv.Itoa(i), "u", rv, nil, "")
			note(o)
			require.NoError(t, c.Apply(store.Batch{Changes: []store.Change{storetest.Put(o)}}))
		}
	}
	put("1", func(o *object.Object) { first = append(first, weak.Make(o)) })
	v, err := c.View()
	require.NoError(t, err)
	v.Close()
	put("2", func(*object.Object) {})
	runtime.GC()
	kept := 0
	for _, o := range first {
		if o.Value() != nil {
			kept++
		}
	}
	require.Less(t, kept, objects/10, "of %d objects that were replaced", objects)
	runtime.KeepAlive(c)
}
