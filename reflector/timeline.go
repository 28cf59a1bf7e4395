package reflector

import (
	"fmt"
	"time"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
)

// A cluster that is restored from a backup starts another history under the numbers of
// the one that was. The guards of a resume find that out before a watch, but there is
// more than one way past them: a list that a 410 asked for may be answered, after some
// tries, by the server that was restored meanwhile; a watch may be opened on it long
// after the guards were asked. What is here closes those.

// proofHolds is how long after a proof a watch may be opened without another one. No
// cluster is restored in that time.
const proofHolds = 5 * time.Second

// mustBeOneHistory says that the list to be made must be of the history of what is
// stored: versions are compared with it, and readers take it for what happened next.
func (r *Reflector) mustBeOneHistory() bool {
	return r.rv != "" && r.reason != store.ReasonInitial && r.reason.TrustsVersions()
}

// clusterChanged compares the server's cluster with that of the checkpoint.
func (r *Reflector) clusterChanged(cluster string) error {
	if sameCluster(cluster, r.cluster) && (!r.opts.Elsewhere || cluster == r.cluster) {
		return nil
	}
	return &RelistError{Reason: store.ReasonClusterChanged, Err: fmt.Errorf("checkpoint is of cluster %s, this is %s", r.cluster, cluster)}
}

// compare says whether an item of a list can be of the history that the stored one is
// of. Each object that is listed is a canary.
func (r *Reflector) compare(key string, held, item deltafifo.Version) error {
	if err := contradicts(store.Header{Key: key, UID: held.UID, RV: held.RV}, r.rv, item.UID, item.RV); err != nil {
		return &RelistError{Reason: store.ReasonRVAhead, Err: err}
	}
	return nil
}

// wentBack says whether a list, which is of the newest state there is, is of an older
// one than the checkpoint.
func (r *Reflector) wentBack(rv string) error {
	if !r.mustBeOneHistory() {
		return nil
	}
	if cmp, ok := object.CompareRV(rv, r.rv); ok && cmp < 0 {
		return &RelistError{Reason: store.ReasonRVAhead, Err: fmt.Errorf("the list is of %s, before the checkpoint %s", rv, r.rv)}
	}
	return nil
}
