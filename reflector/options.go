package reflector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/deltafifo"
	"github.com/snapcache/snapcache/object"
	"github.com/snapcache/snapcache/store"
	"github.com/snapcache/snapcache/upstream"
)

// Source reads one resource of one cluster in one scope. *upstream.Source implements it.
type Source interface {
	// List streams a complete list and returns its resourceVersion.
	List(ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error) (rv string, err error)

	// Watch streams the changes after rv, with bookmarks, for at most timeout.
	Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error)

	// Probe returns nil if the server is at or past rv, and an error that wraps
	// upstream.ErrAhead if it is behind, unless only the server's cache is known to lag.
	Probe(ctx context.Context, rv string) error
}

// Queue takes the objects and events that the reflector reads. *deltafifo.Queue implements it. If it has
// Resync() error, as *deltafifo.DeltaFIFO, that is called too: see Options.ResyncPeriod.
type Queue interface {
	Add(obj any) error
	Update(obj any) error
	Delete(obj any) error
	Bookmark(rv string) error
	Skip() error
	Flush()
	BeginReplace(ctx context.Context, r deltafifo.Replace) error
	ReplaceItem(obj any) error
	KeepItem(key string)
	DropItem(key string)
	EndReplace(rv string) error
	AbortReplace()
}

// Options are the settings of a reflector. Source and Queue are required.
type Options struct {
	Source Source
	Queue  Queue

	// Identity returns the identity of the cluster behind Source; nil if a checkpoint can't come
	// from another cluster.
	Identity func(context.Context) (string, error)

	// Guards are called, in order, before a checkpoint is used, once the cluster is known to be
	// the same and at or past the checkpoint.
	Guards []Guard

	// Schema returns a digest of the form that the objects are served in, empty if the form is
	// not known; nil if it never changes. It is called before a list, before a checkpoint is
	// used, and when a watch ends: every five to ten minutes.
	Schema func(context.Context) (string, error)

	// Member shares the proofs that the server was restored with other collections of its datastore; nil
	// for none.
	Member *Member

	// Kind and APIVersion are the type of the expected objects; other objects are skipped. If
	// empty, all objects are accepted.
	Kind, APIVersion string

	// Checkpoint is the checkpoint to resume from. If Reason is set, it must not be used: the
	// reflector begins with a list, for that reason.
	Checkpoint store.Checkpoint
	Reason     store.Reason

	// ForeignCheckpoint is set if another node may have made Checkpoint. Its cluster must then
	// equal that behind Source: two identities that can't be compared are not enough.
	ForeignCheckpoint bool

	// PageSize is the number of items in a page of a list. 0 is 500.
	PageSize int64

	// ConfirmDeletions is a percentage of a consumer's objects. If there are a hundred or more,
	// a list that would delete more than that is aborted and made again, and applied if the
	// second list lacks most of the same objects. 0 and 100 accept every list.
	ConfirmDeletions int

	// MinWatchTimeout is the shortest timeout of a watch; less than five minutes is five
	// minutes. The longest is twice that.
	MinWatchTimeout time.Duration

	// ResyncPeriod is the time between two calls of the queue's Resync while a watch is open; 0 is
	// never. If ShouldResync is set and returns false, that call is left out.
	ResyncPeriod time.Duration
	ShouldResync func() bool

	// Backoff computes the waits between retries; nil is 0.8 s, doubling to 30 s, with a jitter
	// of up to the same again. It starts over after two minutes without a wait.
	Backoff *wait.Backoff

	// Jitter bounds the random wait before the first request after a start or an
	// outage, so that a fleet does not arrive at once. 0 is none.
	Jitter time.Duration

	// Spread returns a bound of the random wait before the list that follows a 410, which a restarted
	// server answers to all its clients at once; nil is no wait. It is called again each second, so that
	// the wait ends when there is a reader.
	Spread func() time.Duration

	// Observer is notified of the reflector's steps; may be nil.
	Observer Observer

	// Logger gets the state changes and the skipped objects; nil discards them.
	Logger *slog.Logger

	// Clock is the reflector's clock; nil is the real one.
	Clock clock.WithTicker
}

// Phase is the current activity of a reflector.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting" // no request was made yet
	PhaseResuming Phase = "resuming" // the guards are running
	PhaseListing  Phase = "listing"
	PhaseWatching Phase = "watching" // the watch is open
	PhaseWaiting  Phase = "waiting"  // before a retry; the error is the reason
)

// Observer is notified of a reflector's steps. Its methods are called from the reflector's
// goroutine and must not block.
type Observer interface {
	// Phase reports a change of phase. err is the reason of PhaseWaiting, else nil. It wraps a
	// [*MassDeleteError] if a list was held back.
	Phase(p Phase, err error)

	// Listing reports the progress of a list: the numbers of items that were read and that remain, the
	// latter -1 if the server does not report it.
	Listing(reason store.Reason, read, remaining int64)

	// Listed reports a list that is complete and queued.
	Listed(reason store.Reason, rv string, items int64, took time.Duration)

	// Resumed reports that the guards passed and the watch continues at rv.
	Resumed(rv string)

	// Refused reports that the checkpoint must not be used any more: the next step is a list.
	Refused(reason store.Reason, why error)

	// Event reports one watch event that was queued, bookmarks included, and its resourceVersion.
	Event(t watch.EventType, rv string)

	// Skipped reports an object or event of the server that can't be used.
	Skipped(err error)
}

// NopObserver is an Observer that does nothing, to embed in others.
type NopObserver = nopObserver

type nopObserver struct{}

func (nopObserver) Phase(Phase, error)                                {}
func (nopObserver) Listing(store.Reason, int64, int64)                {}
func (nopObserver) Listed(store.Reason, string, int64, time.Duration) {}
func (nopObserver) Resumed(string)                                    {}
func (nopObserver) Refused(store.Reason, error)                       {}
func (nopObserver) Event(watch.EventType, string)                     {}
func (nopObserver) Skipped(error)                                     {}
