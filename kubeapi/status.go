package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/snapcache/snapcache/store"
)

// failed returns an error that is answered with a Status.
func failed(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

func notServed() error {
	return failed(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func notAllowed() error {
	return failed(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}

func badRequest(message string) error {
	err := failed(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
	err.ErrStatus.Details = nil
	return err
}

// tooNew is the answer to a request for a resourceVersion that the cache has not reached. Unless it is
// ahead of the server too, a 504 would make client-go continue with an older state; a 429 makes it
// wait.
func tooNew(rv, current string, ahead bool) error {
	if !ahead {
		return later(fmt.Sprintf("resourceVersion %s is newer than the cache, which is at %s", rv, current))
	}
	err := failed(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("Timeout: Too large resource version: %s, current: %s", rv, current))
	err.ErrStatus.Details = &metav1.StatusDetails{
		Causes:            []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}},
		RetryAfterSeconds: 1,
	}
	return err
}

// later asks the client to try again, with the resourceVersion that it has.
func later(message string) error {
	err := failed(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message)
	err.ErrStatus.Details.RetryAfterSeconds = 1
	return err
}

func expired(message string) *apierrors.StatusError {
	err := failed(http.StatusGone, metav1.StatusReasonExpired, message)
	err.ErrStatus.Details = nil
	return err
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
	f := failed(http.StatusInternalServerError, "", text)
	f.ErrStatus.Details = nil
	return f
}

// statusOf returns the Status for an error.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	s := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: "Internal error occurred: " + err.Error(),
	}
	switch {
	case errors.As(err, &status):
		s = status.Status()
	case errors.Is(err, store.ErrNoCollection), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrViewExpired):
		return statusOf(later("the cache is being opened or closed"))
	}
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return s
}

// sendError answers with the Status for an error.
func sendError(w http.ResponseWriter, r *http.Request, err error) {
	s := statusOf(err)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	body, err := json.Marshal(s)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	body = append(body, '\n')
	if !acceptsPlain(r.Header.Get("Accept")) { // a kube-apiserver has no form for it, and sends what a person can read
		body = indented(body)
	}
	sendJSON(w, r, int(s.Code), body)
}

// gone reports whether a store's error means that a resourceVersion has no meaning here any more.
func gone(err error) bool { return errors.As(err, new(*store.TooOldError)) }

// groupResource returns the resource as errors name it.
func groupResource(i store.Info) schema.GroupResource {
	return schema.GroupResource{Group: i.Group, Resource: i.Resource}
}
