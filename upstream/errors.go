package upstream

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrAhead means that neither the server nor its newest state has reached the requested
	// resourceVersion. One server of several may be behind. If all servers stay behind, the cluster
	// was restored from an older state.
	ErrAhead = errors.New("the resourceVersion is ahead of the server")

	// ErrLags means that the cluster has reached the resourceVersion, but this server has not yet.
	// Wait and try again.
	ErrLags = errors.New("the server lags behind its cluster")

	// ErrBadList means that the body is not one complete list of the resource. The caller must
	// discard items delivered before.
	ErrBadList = errors.New("not a complete list of the resource")

	// ErrTooLarge means that one item or event is over the limit of 16 MiB.
	ErrTooLarge = errors.New("over the limit of 16 MiB for one object")

	// ErrWrongType means that an object is not of the source's resource.
	ErrWrongType = errors.New("object of another type")

	// ErrNoObject means that the server has no such object in the source's scope.
	ErrNoObject = errors.New("no such object in scope")
)

// ReasonConnectionLost is the reason in the Status of an ERROR event that reports a broken
// connection, as opposed to a watch that the server closed normally. No server sends it.
const ReasonConnectionLost metav1.StatusReason = "ConnectionLost"

// NoResourceError means that the server has no such resource, or offers no list or watch of it.
type NoResourceError struct{ text string }

func (e *NoResourceError) Error() string { return e.text }
