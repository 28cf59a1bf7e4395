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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// ErrorKind is the class of a failure, for status and decisions. The set is closed, so a kind can
// be the label of a metric.
type ErrorKind string

// The kinds of errors.
const (
	Unreachable  ErrorKind = "unreachable"  // there is no connection to the server, or it broke
	Untrusted    ErrorKind = "untrusted"    // TLS failed: the server may be another one, or a clock is wrong
	Unauthorized ErrorKind = "unauthorized" // the server does not accept the credential (401), or there is none
	Forbidden    ErrorKind = "forbidden"    // the server does not allow the authenticated user the request (403)
	Gone         ErrorKind = "gone"         // the server does not have the resource (404)
	Expired      ErrorKind = "expired"      // the server no longer has the resourceVersion (410)
	Ahead        ErrorKind = "ahead"        // the server does not have the resourceVersion yet, see [ErrAhead]
	Throttled    ErrorKind = "throttled"    // the server asks for a later retry (429)
	Server       ErrorKind = "server"       // the server failed (5xx)
	Other        ErrorKind = "other"        // everything else
)

// ErrorKinds returns the closed set, in the order of the constants.
func ErrorKinds() []ErrorKind {
	return []ErrorKind{Unreachable, Untrusted, Unauthorized, Forbidden, Gone, Expired, Ahead, Throttled, Server, Other}
}

// Kind classifies an error of this package, or one that was made from the Status
// of an ERROR event with [apierrors.FromObject]. It is empty for nil.
//
// [apierrors.FromObject]: https://pkg.go.dev/k8s.io/apimachinery/pkg/api/errors#FromObject
func Kind(err error) ErrorKind {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrAhead), isAhead(err):
		return Ahead
	case errors.As(err, new(*NoResourceError)):
		return Gone
	case errors.As(err, &status):
		return statusKind(status.Status())
	case isCredential(err):
		return Unauthorized
	case isTLS(err):
		return Untrusted
	case isNetwork(err):
		return Unreachable
	}
	return Other
}

// Denied reports whether the server itself authenticated the user and does not allow it to read
// resource (403). The 403 of a proxy or login page has no details of the resource.
func Denied(err error, resource schema.GroupResource) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || statusKind(status.Status()) != Forbidden {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == resource.Resource && d.Group == resource.Group &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func statusKind(st metav1.Status) ErrorKind {
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
		utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) || isStreamReset(err)
}

// isStreamReset reports whether HTTP/2 reset a stream. net/http and x/net have different types for
// the error.
func isStreamReset(err error) bool {
	return strings.Contains(err.Error(), "stream error: stream ID ")
}
