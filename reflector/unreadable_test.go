package reflector_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/snapcache/snapcache/object"
)

// storeReadError is the event that ends every watch if an object that the server can't read is
// deleted.
func storeReadError() watch.Event {
	return status(http.StatusInternalServerError, metav1.StatusReasonStoreReadError)
}

func TestStoreReadError(t *testing.T) {
	failed := apierrors.FromObject(storeReadError().Object)
	listed := []string{"begin store-read-error uid:1 force=false", `list page=500`, "item b@60", "end 100", "watch 100"}
	for _, tc := range []struct {
		name string
		s    *script
	}{
		{"error event", &script{watches: []answer{{events: []watch.Event{storeReadError()}}}}},
		{"after an event", &script{watches: []answer{{events: []watch.Event{event(watch.Modified, "a", 51), storeReadError()}}}}},
		{"watch refused", &script{watches: []answer{{err: failed}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.s.listItems = []*object.Object{pod("b", 60)}
			log := play(t, tc.s, time.Minute, nil)
			require.Equal(t, listed, log[len(log)-5:])
			require.Equal(t, 1, has(log, "begin"), "%q", log)
		})
	}
}

// A list that fails the same way is aborted and retried: it deletes nothing.
func TestListFailsWithStoreReadError(t *testing.T) {
	failed := apierrors.FromObject(storeReadError().Object)
	s := &script{lists: []error{failed, failed}, watches: []answer{{events: []watch.Event{storeReadError()}}}}
	begin := "begin store-read-error uid:1 force=false"
	require.Equal(t, []string{
		"probe 50", "watch 50", begin, `list page=500`, "abort",
		begin, `list page=500`, "abort", begin, `list page=500`, "end 100", "watch 100",
	}, play(t, s, time.Minute, nil))
}

// Lists after watches that all end with a store read error have a backoff.
func TestStoreReadErrorBacksOff(t *testing.T) {
	s := &script{}
	for range 1000 {
		s.watches = append(s.watches, answer{events: []watch.Event{storeReadError()}})
	}
	lists := has(play(t, s, time.Hour, nil), "begin store-read-error")
	require.Less(t, lists, 130)
	require.Greater(t, lists, 50)
}
