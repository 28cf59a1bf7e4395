package upstream

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrAhead says that the server has not reached the resourceVersion that it was
	// asked for, and neither has its newest state. One server of several may be behind;
	// all of them for long means that the cluster went back in time.
	ErrAhead = errors.New("the resourceVersion is ahead of the server")

	// ErrLags says that the cluster has reached the resourceVersion and the server has
	// not heard of it yet. It is a reason to wait.
	ErrLags = errors.New("the server lags behind its cluster")

	// ErrBadList says that a list's body is not one complete list of the resource.
	// Items that were delivered before must be thrown away.
	ErrBadList = errors.New("not a complete list of the resource")

	// ErrTooLarge says that one item or event is over the limit of 16 MiB.
	ErrTooLarge = errors.New("over the limit of 16 MiB for one object")

	// ErrWrongType says that an object is not of the source's resource.
	ErrWrongType = errors.New("object of another type")

	// ErrNotWatchable says that the server offers no list or no watch of a resource.
	ErrNotWatchable = errors.New("the server does not offer list and watch of it")

	// ErrNoObject says that the server has no such object in the source's scope.
	ErrNoObject = errors.New("no such object in scope")

	// ErrNoConfig says that no kubeconfig was given and none was found.
	ErrNoConfig = errors.New("no kubeconfig was given and none was found")
)

// ReasonConnectionLost is the reason in the Status of an ERROR event that stands
// for a connection that broke, so that this can be told from a watch that the
// server closed in good order. No server sends it.
const ReasonConnectionLost metav1.StatusReason = "ConnectionLost"

// NoResourceError says that the server has no such resource.
type NoResourceError struct {
	// Resource, Version and Group are what was asked for. Version is empty where
	// any would have done; Group is empty for the core group.
	Resource, Version, Group string

	// Suggestions are resources of the server that may be meant, as
	// "deployments.apps" or, in another version, "deployments.v1.apps".
	Suggestions []string
}

func (e *NoResourceError) Error() string {
	where := "the core group"
	if e.Group != "" {
		where = "group " + e.Group
	}
	if e.Version != "" {
		where = "version " + e.Version + " of " + where
	}
	text := fmt.Sprintf("the server has no resource %q in %s", e.Resource, where)
	if len(e.Suggestions) > 0 {
		text += ": did you mean " + strings.Join(e.Suggestions, " or ") + "?"
	}
	return text
}

// ConfigError says what is wrong with the configuration of the connection and
// what to do about it.
type ConfigError struct {
	// Path is the file, or a list of files as in $KUBECONFIG; empty where the
	// trouble is in no file.
	Path string

	// Err is the trouble.
	Err error

	// Hint is what to do.
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

// Unwrap returns the trouble itself.
func (e *ConfigError) Unwrap() error { return e.Err }
