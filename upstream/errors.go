package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/snapcache/snapcache/store"
)

var (
	// ErrAhead means that neither the server nor its newest state has reached the requested
	// resourceVersion. One server of several may be behind. If all servers stay behind, the cluster
	// was restored from an older state.
	ErrAhead = errors.New("the resourceVersion is ahead of the server")

	// ErrLags means that the cluster has reached the resourceVersion, but this server has not yet.
	// Wait and try again.
	ErrLags = errors.New("the server lags behind its cluster")

	// ErrCutOff means that the server is an agent that can't reach its own server at the moment.
	ErrCutOff = errors.New("the server is an agent that has not reached the cluster")

	// ErrSilent means that an open watch has not proven that it delivers the server's changes: it missed
	// some, sent older ones again, did not end at its timeout, or the server was asked and did not answer.
	ErrSilent = errors.New("the watch is silent")

	// ErrBadList means that the body is not one complete list of the resource. The caller must
	// discard items delivered before.
	ErrBadList = errors.New("not a complete list of the resource")

	// ErrTooLarge means that one item or event is over the limit of 16 MiB.
	ErrTooLarge = errors.New("over the limit of 16 MiB for one object")

	// ErrTooDeep means that an object is nested deeper than Kubernetes' clients can read.
	ErrTooDeep = errors.New("nested more than 10,000 levels deep, which no client can read")

	// errNotJSON means that a body is no JSON object, so no Kubernetes API made it.
	errNotJSON = errors.New("the body is no JSON object")

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

// HistorySince returns when the history of a server begins that does not have a past state, but all
// changes since, as an agent does. ok is false for any other error.
func HistorySince(err error) (since time.Time, ok bool) {
	cause, found := apierrors.StatusCause(err, store.HistorySinceCause)
	if !found {
		return since, false
	}
	since, err = time.Parse(time.RFC3339Nano, cause.Message)
	return since, err == nil
}

// ErrorClass is the class of a failure, for status and decisions. The set is closed, so a class can
// be the label of a metric.
type ErrorClass string

// The classes of errors.
const (
	Unreachable  ErrorClass = "unreachable"  // there is no connection to the server, or it broke
	Untrusted    ErrorClass = "untrusted"    // TLS failed: the server may be another one, or a clock is wrong
	Unauthorized ErrorClass = "unauthorized" // the server does not accept the credential (401), or there is none
	Forbidden    ErrorClass = "forbidden"    // the server does not allow the authenticated user the request (403)
	Gone         ErrorClass = "gone"         // the server does not have the resource (404)
	Expired      ErrorClass = "expired"      // the server no longer has the resourceVersion (410)
	Ahead        ErrorClass = "ahead"        // the server does not have the resourceVersion yet, see [ErrAhead]
	Throttled    ErrorClass = "throttled"    // the server asks for a later retry (429)
	Server       ErrorClass = "server"       // the server failed (5xx)
	Other        ErrorClass = "other"        // everything else
)

// ErrorClasses returns the closed set, in the order of the constants.
func ErrorClasses() []ErrorClass {
	return []ErrorClass{Unreachable, Untrusted, Unauthorized, Forbidden, Gone, Expired, Ahead, Throttled, Server, Other}
}

// faults are the classes in words for readers of the cache, who can't mend them. The server may answer.
var faults = map[ErrorClass]string{
	"":           "the server can't be reached",
	Unreachable:  "the server can't be reached",
	Untrusted:    "no trusted connection to the server can be made",
	Unauthorized: "the server does not accept the cache's credential",
	Forbidden:    "the server does not allow the cache to read this",
	Gone:         "the server does not have this resource",
	Expired:      "the server does not have the cache's state any more",
	Ahead:        "the server has not reached the cache's state",
	Throttled:    "the server is busy",
	Server:       "the server fails",
	Other:        "the server's answers can't be used",
}

// Fault returns in a few words why the cache does not follow the server. There is nothing in it about the
// cache's own identity.
func (c ErrorClass) Fault() string { return faults[c] }

// Classify classifies an error of this package, or one that was made from the Status
// of an ERROR event with [apierrors.FromObject]. It is empty for nil.
//
// [apierrors.FromObject]: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#FromObject
func Classify(err error) ErrorClass {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrAhead), isAhead(err):
		return Ahead
	case errors.Is(err, ErrCutOff):
		return Unreachable
	case errors.As(err, new(*NoResourceError)):
		return Gone
	case errors.As(err, &status):
		return classifyStatus(status.Status())
	case isCredential(err):
		return Unauthorized
	case isTLS(err):
		return Untrusted
	case isNetwork(err), errors.Is(err, ErrSilent):
		return Unreachable
	}
	return Other
}

// IsForbidden reports whether the server itself authenticated the user and does not allow it to
// read resource (403). The 403 of a proxy or login page has no details of the resource.
func IsForbidden(err error, resource schema.GroupResource) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || classifyStatus(status.Status()) != Forbidden {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == resource.Resource && d.Group == resource.Group &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func classifyStatus(st metav1.Status) ErrorClass {
	switch {
	case st.Reason == ReasonConnectionLost:
		return Unreachable
	case st.Code == http.StatusUnauthorized || st.Reason == metav1.StatusReasonUnauthorized:
		return Unauthorized
	case st.Code == http.StatusForbidden || st.Reason == metav1.StatusReasonForbidden:
		return Forbidden
	case st.Code == http.StatusNotFound || st.Reason == metav1.StatusReasonNotFound:
		return Gone
	case st.Code == http.StatusGone || st.Reason == metav1.StatusReasonExpired || st.Reason == metav1.StatusReasonGone:
		return Expired
	case st.Code == http.StatusTooManyRequests || st.Reason == metav1.StatusReasonTooManyRequests:
		return Throttled
	case st.Code >= http.StatusInternalServerError:
		return Server
	}
	return Other
}

// isCredential reports whether a request was not sent because its credential could not be obtained.
// client-go returns these errors only as text.
func isCredential(err error) bool {
	return slices.ContainsFunc([]string{"getting credentials: ", "failed to read token file ", "read empty token from file "},
		func(s string) bool { return strings.Contains(err.Error(), s) })
}

func isTLS(err error) bool {
	return isAlert(err) || errors.Is(err, http.ErrSchemeMismatch) ||
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(x509.SystemRootsError))
}

// isAlert reports whether the server sent a TLS alert, for example because it requires a client
// certificate. crypto/tls does not export the alert's type.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

func isNetwork(err error) bool {
	return errors.As(err, new(*net.DNSError)) || errors.As(err, new(*net.OpError)) || errors.As(err, new(syscall.Errno)) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) ||
		utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || isHTTP2(err)
}

// isHTTP2 reports whether HTTP/2 reset a stream or ended a connection. net/http exports none of these errors, and x/net
// has other types.
func isHTTP2(err error) bool {
	return slices.ContainsFunc([]string{"stream error: stream ID ", "http2: client conn", "http2: Transport received Server's graceful shutdown"},
		func(s string) bool { return strings.Contains(err.Error(), s) })
}
