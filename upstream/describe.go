package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// hintNotKubernetes is the hint for an answer that no kube-apiserver would send.
const hintNotKubernetes = "check that the address is a Kubernetes API's, and that no proxy or login page answers in its place"

// hintOtherJSON is the hint for JSON that is not the list that was asked for. No login page sends it.
const hintOtherJSON = "check that the address is a Kubernetes API's, and that no proxy changes or shortens its answers"

// Describe returns one line for the operator of the node: the fault and what to do. It contains
// no credentials. It is empty for nil.
func Describe(err error) string {
	if err == nil {
		return ""
	}
	var missing *NoResourceError
	var status apierrors.APIStatus
	var negotiate runtime.NegotiateError
	text := ""
	switch kind := Classify(err); {
	case errors.As(err, &missing):
		text = missing.Error()
	case errors.Is(err, context.Canceled):
		text = "stopped"
	case errors.Is(err, ErrLags):
		text = "the server has not reached the cache's resourceVersion, but its cluster has: it is one of several and lags; waiting loses nothing"
	case kind == Ahead:
		text = "the server has not reached the cache's resourceVersion: it is one of several and lags, or the cluster was restored from a backup or replaced"
	case errors.As(err, &status):
		text = describeStatus(status.Status(), scopeOf(err))
	case kind == Unauthorized:
		text = "there is no credential to send: check the token file or credential plugin of the kubeconfig: " + cause(err)
	case kind == Untrusted:
		text = describeTLS(err)
	case kind == Unreachable:
		text = describeNetwork(err)
	case errors.As(err, &negotiate):
		text = fmt.Sprintf("the server answered with %s: %s", quoteEmpty(negotiate.ContentType), hintNotKubernetes)
	case errors.Is(err, errNotJSON):
		text = err.Error() + ": " + hintNotKubernetes
	case errors.Is(err, ErrBadList):
		text = err.Error() + ": " + hintOtherJSON
	default:
		text = err.Error()
	}
	return redact(oneLine(text))
}

// Explain wraps err for a log, with the text of [Describe].
func Explain(err error) error {
	if err == nil {
		return nil
	}
	return explained{err}
}

type explained struct{ err error }

func (d explained) Error() string { return Describe(d.err) }
func (d explained) Unwrap() error { return d.err }

// scopedError is an error of requests in one namespace.
type scopedError struct {
	namespace string
	err       error
}

func (e scopedError) Error() string { return e.err.Error() }
func (e scopedError) Unwrap() error { return e.err }

// scopeOf returns the text " in the namespace NAME" if err concerns a single namespace, else "".
func scopeOf(err error) string {
	if scoped, ok := errors.AsType[scopedError](err); ok {
		return " in the namespace " + scoped.namespace
	}
	return ""
}

func describeStatus(st metav1.Status, scope string) string {
	text := statusText(st)
	switch classifyStatus(st) {
	case Unreachable:
		return text + ": check the network to the server"
	case Unauthorized:
		return "the server does not accept the credential (401): renew the token or client certificate in the kubeconfig, and check this device's clock"
	case Forbidden:
		return fmt.Sprintf("the server forbids it (403): grant get, list and watch on %s%s to this user: %s", statusResource(st), scope, text)
	case Gone:
		return "the server does not have it (404): check that the resource's version is served and its CRD is installed: " + text
	case Expired:
		return "the server no longer has this resourceVersion (410): a new list is needed: " + text
	case Throttled:
		if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
			return fmt.Sprintf("the server is busy (429) and asks for a retry in %d s: %s", st.Details.RetryAfterSeconds, text)
		}
		return "the server is busy (429) and asks for a retry later: " + text
	case Server:
		return fmt.Sprintf("the server failed (%d): look into the kube-apiserver's log if it lasts: %s", st.Code, text)
	}
	if strings.Contains(text, "HTTP request to an HTTPS server") {
		return "the server speaks TLS only: write https:// before its address in the kubeconfig"
	}
	return fmt.Sprintf("the server refused the request (%d): %s", st.Code, text)
}

// statusText returns a Status's message. If the answer was not a Status but, for example, a proxy's
// page, its text is included.
func statusText(st metav1.Status) string {
	text := st.Message
	if text == "" {
		text = string(st.Reason)
	}
	if st.Details != nil {
		for _, c := range st.Details.Causes {
			if c.Type == metav1.CauseTypeUnexpectedServerResponse && c.Message != "" && c.Message != "unknown" && !strings.Contains(text, c.Message) {
				text += ": " + c.Message
			}
		}
	}
	return text
}

func statusResource(st metav1.Status) string {
	if st.Details == nil || st.Details.Kind == "" {
		return "the resource"
	}
	return schema.GroupResource{Group: st.Details.Group, Resource: st.Details.Kind}.String()
}

func describeTLS(err error) string {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		text := "the server's certificate is not valid for " + host.Host
		if host.Certificate != nil {
			text += fmt.Sprintf(" (but for %s)", certificateNames(host.Certificate))
		}
		return text + ": use one of its names as the server's address in the kubeconfig, or set tls-server-name there"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the server's certificate is not valid at this device's time (%s): set the clock, or renew the certificate", invalid.Detail)
	case errors.As(err, &invalid):
		return "the server's certificate can't be used: renew it: " + invalid.Error()
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "the server's certificate is not signed by the CA in the kubeconfig: use the kubeconfig of this cluster, or correct certificate-authority in it"
	case errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS at " + hostOf(err) + ": correct the scheme or port of its address in the kubeconfig"
	case isAlert(err):
		return "the server aborted the TLS handshake: check the client certificate in the kubeconfig: " + cause(err)
	}
	return "no TLS connection to the server: " + cause(err)
}

func certificateNames(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no name at all"
	}
	return strings.Join(names, ", ")
}

func describeNetwork(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("can't reach the server: host %q does not exist: check its name in the kubeconfig and this device's DNS", dns.Name)
	case errors.As(err, &dns):
		return fmt.Sprintf("can't reach the server: DNS does not answer for %q: check this device's network and DNS", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("can't reach the server: connection refused by %s: check that the kube-apiserver runs there", hostOf(err))
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return fmt.Sprintf("can't reach the server: no route to %s: check this device's network", hostOf(err))
	case errors.Is(err, ErrSilent):
		return "the server's changes may not arrive: check proxies on the way to it: " + err.Error()
	case errors.Is(err, context.DeadlineExceeded), utilnet.IsTimeout(err):
		return fmt.Sprintf("can't reach the server: no answer from %s in time: check the network and firewalls in between", hostOf(err))
	}
	return "the connection to the server was lost: check the network and proxies in between: " + cause(err)
}

func hostOf(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if parsed, err := url.Parse(u.URL); err == nil && parsed.Host != "" {
			return parsed.Host
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return op.Addr.String()
	}
	return "its address"
}

// cause returns err's text without the request's URL.
func cause(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err.Error()
}

// maxText limits a line, in bytes. Servers and proxies put whole pages into messages.
const maxText = 600

// oneLine joins the lines of text and truncates it to maxText.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{16,}`), "$1 ***"},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "***"}, // a JWT
	{regexp.MustCompile(`://[^/\s@"]+@`), "://***@"},
}

// redact replaces text that looks like a credential. No error of Go or client-go is known to contain
// one, but a message from a server or a plugin may.
func redact(text string) string {
	for _, s := range secrets {
		text = s.pattern.ReplaceAllString(text, s.with)
	}
	return text
}
