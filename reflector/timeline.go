package reflector

import (
	"fmt"
	"time"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// A cluster that is restored from a backup begins another history, which uses the same
// resourceVersions again. The guards of a resume detect that before a watch, with two gaps: the
// list after a 410 may, after some retries, come from a server that was restored meanwhile, and a
// watch may be opened on such a server long after the guards have run. The checks in this file
// close both gaps.

// validFor is how long after a validation a watch may be opened without another one. It is shorter
// than any restore of a cluster takes.
const validFor = 5 * time.Second

// mustBeOneHistory reports whether the next list must have the history of the stored objects: their
// versions are compared with the list's, and readers see the list as a continuation of the stored
// history.
func (r *Reflector) mustBeOneHistory() bool {
	return r.rv != "" && r.reason != store.ReasonInitial && r.reason.TrustsVersions()
}

// clusterChanged returns a [*RelistError] if the server's cluster is not that of the checkpoint.
func (r *Reflector) clusterChanged(cluster string) error {
	if sameCluster(cluster, r.cluster) && (!r.opts.ForeignCheckpoint || cluster == r.cluster) {
		return nil
	}
	return &RelistError{Reason: store.ReasonClusterChanged, Err: fmt.Errorf("checkpoint is of cluster %s, this is %s", r.cluster, cluster)}
}

// compare returns a [*RelistError] if an item of a list can't have the history of the stored one.
// It is called for each listed object.
func (r *Reflector) compare(key string, held, item deltafifo.Version) error {
	if err := sameHistory(store.Header{Key: key, UID: held.UID, RV: held.RV}, r.rv, item.UID, item.RV); err != nil {
		return &RelistError{Reason: store.ReasonRVAhead, Err: err}
	}
	return nil
}

// wentBack returns a [*RelistError] if a list, which is of the newest state, is older than the
// checkpoint.
func (r *Reflector) wentBack(rv string) error {
	if !r.mustBeOneHistory() {
		return nil
	}
	if cmp, ok := object.CompareRV(rv, r.rv); ok && cmp < 0 {
		return &RelistError{Reason: store.ReasonRVAhead, Err: fmt.Errorf("the list is of %s, before the checkpoint %s", rv, r.rv)}
	}
	return nil
}
