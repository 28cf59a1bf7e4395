package upstream

import (
	"errors"
	"fmt"
	"strings"

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

	// ErrNotWatchable means that the server has the resource, but offers no list or no watch.
	ErrNotWatchable = errors.New("the server does not offer list and watch of it")

	// ErrNoObject means that the server has no such object in the source's scope.
	ErrNoObject = errors.New("no such object in scope")

	// ErrNoConfig means that no kubeconfig was given and none was found.
	ErrNoConfig = errors.New("no kubeconfig was given and none was found")
)

// ReasonConnectionLost is the reason in the Status of an ERROR event that reports a broken
// connection, as opposed to a watch that the server closed normally. No server sends it.
const ReasonConnectionLost metav1.StatusReason = "ConnectionLost"

// NoResourceError means that the server has no such resource.
type NoResourceError struct {
	// Resource, Version and Group are the request. Version is empty for any version, Group for the
	// core group.
	Resource, Version, Group string

	// Suggestions are resources of the server with a similar name, such as "deployments.apps" or,
	// in another version, "deployments.v1.apps".
	Suggestions []string
}

func (e *NoResourceError) Error() string {
	place := "the core group"
	if e.Group != "" {
		place = "group " + e.Group
	}
	if e.Version != "" {
		place = "version " + e.Version + " of " + place
	}
	text := fmt.Sprintf("the server has no resource %q in %s", e.Resource, place)
	if len(e.Suggestions) > 0 {
		text += ": did you mean " + strings.Join(e.Suggestions, " or ") + "?"
	}
	return text
}

// ConfigError is a fault in the configuration of the connection, with a hint.
type ConfigError struct {
	// Path is the file, or the list of files as in $KUBECONFIG. It is empty if no file is at fault.
	Path string

	// Err is the fault.
	Err error

	// Hint is what the operator can do.
	Hint string
}

func (e *ConfigError) Error() string {
	text := oneLine(e.Err.Error())
	if e.Path != "" {
		text = "kubeconfig " + e.Path + ": " + text
	}
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	return text
}

// Unwrap returns Err.
func (e *ConfigError) Unwrap() error { return e.Err }
