package forward

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The answers to requests that are not forwarded, or that the server does not answer. client-go repeats
// a request, whatever it does, if the answer has a Retry-After: only those that the server can't have
// seen have one.
var (
	errDisconnected = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 1,
		"the kube-apiserver can't be reached, and this request is not one that the cache answers")
	errUnreachable = failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 1,
		"the request could not be forwarded: there is no connection to the kube-apiserver")
	errNoAnswer = failure(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, 0,
		"the connection to the kube-apiserver has ended before it answered: it may have done what was asked for")
	errBody = failure(http.StatusRequestTimeout, metav1.StatusReasonTimeout, 0,
		"the body of the request has not come whole")
	errTooMany = failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 1,
		"too many requests are being forwarded")
	errNoCredentials = failure(http.StatusForbidden, metav1.StatusReasonForbidden, 0,
		"the request can't be forwarded: it has no credentials of a user of the cluster")
)

func failure(code int32, reason metav1.StatusReason, retryAfter int32, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}
}

// sendError answers with the Status of an error.
func sendError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	body, err := json.Marshal(s)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache, private")
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(append(body, '\n')) // if it fails, the client is gone
}
