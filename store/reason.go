package store

// Reason is why a collection was listed. The set is closed: nothing else makes a
// list, in particular no connection error, timeout, 429 or 500.
type Reason string

const (
	// ReasonInitial: the collection never had a complete list.
	ReasonInitial Reason = "initial"
	// ReasonExpired: the server has compacted the checkpoint (410).
	ReasonExpired Reason = "expired"
	// ReasonClusterChanged: the server belongs to another cluster.
	ReasonClusterChanged Reason = "cluster-changed"
	// ReasonRVAhead: the checkpoint is ahead of the server, which was restored from an older state.
	ReasonRVAhead Reason = "rv-ahead"
	// ReasonScopeChanged: the checkpoint was made with other selectors, or with another namespace,
	// transform or version.
	ReasonScopeChanged Reason = "scope-changed"
	// ReasonSchemaChanged: the resource's schema or served version changed.
	ReasonSchemaChanged Reason = "schema-changed"
	// ReasonSilentClose: resumed watches end at once, without an event or an error.
	ReasonSilentClose Reason = "silent-close"
	// ReasonSkipped: events at or before the checkpoint were left out, because their objects
	// were of another type.
	ReasonSkipped Reason = "skipped-events"
	// ReasonVerifyFailed: a comparison with the server found more differences than are fetched
	// one by one, or one that could not be.
	ReasonVerifyFailed Reason = "verify-failed"
	// ReasonRequested: an operator requested the list.
	ReasonRequested Reason = "requested"
	// ReasonStoreReadError: a watch ended because the server could not read an object, for example
	// after the deletion of an object that it can't decode. No other watch sends the missing event.
	ReasonStoreReadError Reason = "store-read-error"
	// ReasonRecovered: the collection comes from a corrupt file or a snapshot.
	ReasonRecovered Reason = "recovered"
)

// Reasons returns the closed set, in the order of the constants.
func Reasons() []Reason {
	return []Reason{
		ReasonInitial, ReasonExpired, ReasonClusterChanged, ReasonRVAhead, ReasonScopeChanged,
		ReasonSchemaChanged, ReasonSilentClose, ReasonSkipped, ReasonVerifyFailed, ReasonRequested,
		ReasonStoreReadError, ReasonRecovered,
	}
}

// TrustsVersions reports whether, for a list of this reason, a stored object with the same UID and
// resourceVersion as an item is the same object. It may differ if the stored bytes were made by
// other rules, or in another history of the cluster, which may have used the same resourceVersions.
func (r Reason) TrustsVersions() bool {
	switch r {
	case ReasonInitial, ReasonExpired, ReasonSilentClose, ReasonSkipped, ReasonRequested, ReasonStoreReadError:
		return true
	}
	return false
}
