package kubeapi

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
	"github.com/snapcache/snapcache/store"
)

func notServed() error {
	return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

// errNoPage is the answer for a path outside the groups that are built in. It has no Status, as in a
// kube-apiserver.
var errNoPage = errors.New("404 page not found")

// noSuchPath is the answer for a path that is not served.
func noSuchPath(builtIn bool) error {
	if builtIn {
		return notServed()
	}
	return errNoPage
}

func notAllowed() error {
	return status.Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

func badRequest(message string) error {
	return status.Bare(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// tooNew is the answer to a request for a resourceVersion that the cache has not reached. Unless it is
// ahead of the server too, a 504 would make client-go continue with an older state; a 429 makes it
// wait.
func tooNew(rv, current string, ahead bool) error {
	if !ahead {
		return later(fmt.Sprintf("resourceVersion %s is newer than the cache, which is at %s", rv, current))
	}
	err := status.Later(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("Timeout: Too large resource version: %s, current: %s", rv, current))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// later asks the client to try again, with the resourceVersion that it has.
func later(message string) error { return status.TooMany(message) }

func expired(message string) *apierrors.StatusError {
	return status.Bare(http.StatusGone, metav1.StatusReasonExpired, message)
}

// tooOld ends a watch whose resourceVersion is before the stored history.
func tooOld(rv, oldest string) error {
	return expired(fmt.Sprintf("too old resource version: %s (%s)", rv, oldest))
}

// invalidRV is the answer to a resourceVersion that is not a number.
func invalidRV(rv string, err error, v verb) error {
	text := fmt.Sprintf("resourceVersion: Invalid value: %q: %v", rv, err)
	if v == verbList {
		return badRequest("invalid resource version: " + text)
	}
	return status.Bare(http.StatusInternalServerError, "", text)
}

// statusOf returns the Status for an error.
func statusOf(err error) metav1.Status {
	if errors.Is(err, store.ErrNoCollection) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrViewExpired) {
		err = later("the cache is being opened or closed")
	}
	return status.Of(err)
}

// sendError answers with the Status for an error, readable if the client accepts no plain JSON: a
// kube-apiserver has no other form for it.
func sendError(w http.ResponseWriter, r *request, err error) {
	if errors.Is(err, errNoPage) {
		w.Header().Set("Cache-Control", "no-cache, private")
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	status.Send(w, statusOf(err), r.pretty() || !status.AcceptsJSON(r.Header.Get("Accept"), true))
}

// gone reports whether a store's error means that the changes since a resourceVersion are not known any more.
func gone(err error) bool {
	return errors.As(err, new(*store.TooOldError)) || errors.Is(err, store.ErrNoHistory)
}

// groupResource returns the resource as errors name it.
func groupResource(i store.Info) schema.GroupResource {
	return schema.GroupResource{Group: i.Group, Resource: i.Resource}
}
