package forward

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/snapcache/snapcache/kubeapi/internal/status"
)

// The answers to requests that are not forwarded, or that the server does not answer. client-go repeats
// a request up to ten times, whatever it does, if the answer has a Retry-After: without a link that makes
// a person wait for nothing.
var (
	errDisconnected = status.Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the kube-apiserver can't be reached, and this request is not one that the cache answers")
	errUnreachable = status.Error(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the request could not be forwarded: there is no connection to the kube-apiserver")
	errNoAnswer = status.Error(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable,
		"the kube-apiserver has not answered: it may have done what was asked for")
	errBody = status.Error(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
		"the body of the request has not come whole")
	errTooMany       = status.TooMany("too many requests are being forwarded")
	errNoCredentials = status.Error(http.StatusForbidden, metav1.StatusReasonForbidden,
		"the request can't be forwarded: it has no credentials of a user of the cluster")
)

func sendError(w http.ResponseWriter, err error) { status.Send(w, status.Of(err), false) }
