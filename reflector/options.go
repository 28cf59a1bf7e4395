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

// Source is one resource of one cluster in one scope. *upstream.Source is one.
type Source interface {
	// List streams a complete list and returns its resourceVersion.
	List(ctx context.Context, opts upstream.ListOptions, each func(*object.Object) error) (rv string, err error)

	// Watch streams what comes after rv, with bookmarks, for at most timeout.
	Watch(ctx context.Context, rv string, timeout time.Duration) (watch.Interface, error)

	// Probe returns nil where the server is at or past rv, and an error that wraps
	// upstream.ErrAhead where it is behind, unless it is known to lag only.
	Probe(ctx context.Context, rv string) error
}

// Queue takes what the reflector reads. *deltafifo.Queue is one.
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
	Resync() error
}

// Options are the settings of a reflector. Source and Queue are needed.
type Options struct {
	// Name tells one reflector from others. Where it is empty it is the file and line
	// that called New, and the log tells it.
	Name string

	Source Source
	Queue  Queue

	// Identity returns the identity of the cluster behind Source; nil where a
	// checkpoint can't come from another cluster.
	Identity func(context.Context) (string, error)

	// Guards are asked, in order, before a checkpoint is used, once the cluster is
	// known to be the same and at or past it.
	Guards []Guard

	// Schema returns what tells the form that the objects are served in from every other,
	// empty where that is not known; nil where it never changes. It is asked before a
	// list, before a checkpoint is used, and every ten to fifteen minutes.
	Schema func(context.Context) (string, error)

	// Kind and APIVersion are those of the objects that are expected; others are
	// skipped. Empty takes all.
	Kind, APIVersion string

	// Checkpoint is where to resume. Reason, where set, says why it must not be
	// used and the first thing is a list.
	Checkpoint store.Checkpoint
	Reason     store.Reason

	// Elsewhere says that Checkpoint may have been made by another node. Its cluster
	// must then be the very one behind Source: two identities that can't be compared
	// are not enough.
	Elsewhere bool

	// PageSize is how many items a page of a list has. 0 is 500.
	PageSize int64

	// ConfirmDeletions is a percentage: a list that would delete more than that of a
	// consumer's objects, where those are a hundred or more, is aborted and made again,
	// and believed when it says about the same. 0 and 100 believe every list.
	ConfirmDeletions int

	// FromCache lets the server make the first list from what it has at hand
	// (resourceVersion "0"): cheaper for it, and perhaps some seconds old. Every other
	// list asks for the newest state, for it must not go back in time.
	FromCache bool

	// MinWatchTimeout is the least time that a watch is asked to last, where it is
	// over five minutes; the most is twice as long.
	MinWatchTimeout time.Duration

	// ResyncPeriod is how often the queue is asked to replay what its consumer holds,
	// while a watch is open; 0 is never. ShouldResync, where set, is asked each time.
	ResyncPeriod time.Duration
	ShouldResync func() bool

	// WatchErrorHandler is told of each error that ends a list or a watch, from the
	// reflector's goroutine: it must not block. What happens next is decided already.
	// nil logs.
	WatchErrorHandler func(ctx context.Context, err error)

	// Backoff is the waits between tries; nil is 0.8 s, doubling to 30 s, with as much
	// again at random. It starts over after two minutes without a wait.
	Backoff *wait.Backoff

	// Jitter bounds the random wait before the first request after a start or an
	// outage, so that a fleet does not arrive at once. 0 is none.
	Jitter time.Duration

	// Observer is told what happens; nil for nobody.
	Observer Observer

	// Logger is where state changes are logged; nil for nowhere.
	Logger *slog.Logger

	// Clock is the time; nil is the real one.
	Clock clock.WithTicker
}

// Phase is what a reflector is doing.
type Phase string

// The phases.
const (
	PhaseStarting Phase = "starting" // nothing was asked yet
	PhaseResuming Phase = "resuming" // guards are being asked
	PhaseListing  Phase = "listing"
	PhaseWatching Phase = "watching" // in step with the server
	PhaseWaiting  Phase = "waiting"  // before another try; the error says why
)

// Observer is told what a reflector does. Its methods are called from the
// reflector's goroutine and must not block.
type Observer interface {
	// Phase reports a change of phase. err is why, in PhaseWaiting.
	Phase(p Phase, err error)

	// Listing reports the progress of a list: how many items were read and how many
	// remain, -1 where the server does not say.
	Listing(reason store.Reason, read, remaining int64)

	// Listed reports a list that is complete and queued.
	Listed(reason store.Reason, rv string, items int64, took time.Duration)

	// HeldBack reports a list that was aborted because it would have deleted so many
	// objects. See Options.ConfirmDeletions.
	HeldBack(deletions int)

	// Resumed reports that the guards passed and the watch goes on at rv.
	Resumed(rv string)

	// Refused reports that the checkpoint, and what is stored, must not be relied on
	// any more, so that the next thing is a list.
	Refused(reason store.Reason, why error)

	// Watched reports a watch that ended: how many events it brought and how long it
	// lasted. One that could not be started is told by Phase.
	Watched(events int, lasted time.Duration)

	// Event reports one watch event that was queued, bookmarks included, and the
	// resourceVersion that it has.
	Event(t watch.EventType, rv string)

	// Skipped reports something the server sent that can't be used.
	Skipped(err error)
}

// Silent is an Observer that does nothing, to embed in others.
type Silent struct{}

var _ Observer = Silent{}

// Phase does nothing.
func (Silent) Phase(Phase, error) {}

// Listing does nothing.
func (Silent) Listing(store.Reason, int64, int64) {}

// Listed does nothing.
func (Silent) Listed(store.Reason, string, int64, time.Duration) {}

// HeldBack does nothing.
func (Silent) HeldBack(int) {}

// Resumed does nothing.
func (Silent) Resumed(string) {}

// Refused does nothing.
func (Silent) Refused(store.Reason, error) {}

// Watched does nothing.
func (Silent) Watched(int, time.Duration) {}

// Event does nothing.
func (Silent) Event(watch.EventType, string) {}

// Skipped does nothing.
func (Silent) Skipped(error) {}
