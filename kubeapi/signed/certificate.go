package signed

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/sleep"
)

const (
	// lookEvery is the longest time between two looks at the clock, which may be set meanwhile.
	lookEvery = 10 * time.Minute

	// askTimeout limits one request to the server.
	askTimeout = 30 * time.Second

	// approvalAfter is how long a request waits before the log asks for its approval: clusters that
	// approve by themselves take seconds.
	approvalAfter = time.Minute
)

// Server is the cluster's kube-apiserver.
type Server interface {
	CreateSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error
	SigningRequest(ctx context.Context, name string) (*certificatesv1.CertificateSigningRequest, error)
	DeleteSigningRequest(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error

	// CA returns the authorities of the agent's kubeconfig, in PEM; empty for none.
	CA() ([]byte, error)
}

// Options are the settings of a Certificate.
type Options struct {
	Signer   string // its name
	NodeName string // empty for none
	Host     string // of the address that is served, an IP address or a DNS name

	Dir   string           // of the API's credentials, which exists
	Owner crypto.PublicKey // of the agent's own authority: the request has its name by it
	Clock clock.Clock
	Log   *slog.Logger
}

// Certificate is the certificate that a signer issues to this agent. Get is safe for concurrent use.
type Certificate struct {
	opts   Options
	target target
	name   string // of the request
	held   atomic.Pointer[held]

	// Run alone uses these.
	key      crypto.Signer // of the open request; nil for none
	created  time.Time     // when the open request was first seen
	after    time.Time     // no request before it; zero for no limit
	waits    wait.Backoff  // to the next after
	noted    string        // the last state that was logged
	fault    string        // the last kind of error that was logged; empty after an answer
	outdated *held         // whose end was logged

	refusedUID types.UID // of the last request that was refused
}

// held is a certificate that was issued.
type held struct {
	pair    *tls.Certificate
	purpose string    // a target's text
	renew   time.Time // by the certificate's own dates
}

// refusals are the waits before the next request if it would be of no use.
var refusals = sleep.Backoff(time.Hour, 24*time.Hour, 0.2)

// retries are the waits between two looks at the open request, and between failures.
var retries = sleep.Backoff(time.Second, 2*time.Minute, 0.5)

// Open returns the certificate, with the one that is in the directory. One that can't be used is replaced
// later, which is logged.
func Open(o Options) (*Certificate, error) {
	c := &Certificate{opts: o, target: newTarget(o), waits: refusals}
	var err error
	if c.name, err = requestName(o.NodeName, o.Owner); err != nil {
		return nil, err
	}
	c.load()
	return c, nil
}

// Get returns the certificate; nil if none has been issued yet.
func (c *Certificate) Get() *tls.Certificate {
	if h := c.held.Load(); h != nil {
		return h.pair
	}
	return nil
}

// Run obtains the certificate and renews it, until ctx ends.
func (c *Certificate) Run(ctx context.Context, server Server) {
	if h := c.held.Load(); h != nil {
		c.checkTrust(h, server)
	}
	backoff := retries
	for ctx.Err() == nil {
		if d := c.idle(c.opts.Clock.Now()); d > 0 {
			backoff = retries
			_ = sleep.For(ctx, c.opts.Clock, d) // the condition of the loop
			continue
		}
		if c.noteError(ctx, c.step(ctx, server)); c.idle(c.opts.Clock.Now()) > 0 {
			continue
		}
		if sleep.Retry(ctx, c.opts.Clock, backoff.Step(), nil) {
			backoff = retries
		}
	}
}

// idle returns how long nothing has to be done at least; 0 if a certificate is needed.
func (c *Certificate) idle(now time.Time) time.Duration {
	h := c.held.Load()
	c.noteEnd(h, now)
	var wait time.Duration
	switch {
	case h == nil || h.purpose != c.target.String():
	case now.Before(h.pair.Leaf.NotBefore): // the clock is behind
		return lookEvery
	default:
		wait = h.renew.Sub(now)
	}
	if !c.after.IsZero() { // a time of this process: the difference is by the monotonic clock
		wait = max(wait, c.after.Sub(now))
	}
	return min(max(0, wait), lookEvery)
}

// step brings the request one step forward: it looks at the open one, or creates it.
func (c *Certificate) step(ctx context.Context, server Server) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := server.SigningRequest(ctx, c.name)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, server)
	case err != nil:
		return err
	case c.key == nil || !isFor(r, c.opts.Signer, c.key.Public()):
		return c.remove(ctx, server, r)
	case len(r.Status.Certificate) > 0:
		if err := c.accept(r.Status.Certificate, server); err != nil {
			return c.refused(ctx, server, r, "the signer's certificate can't be used: check the signer", err.Error())
		}
		return nil
	}
	approved := false
	for _, condition := range r.Status.Conditions {
		if condition.Status == corev1.ConditionFalse {
			continue
		}
		why := fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return c.refused(ctx, server, r, "the request for a serving certificate was denied: "+
				"have its approver allow the next one, or set certFile and keyFile", why)
		case certificatesv1.CertificateFailed:
			return c.refused(ctx, server, r,
				"the signer can't issue the serving certificate: check its controller's log", why)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	now := c.opts.Clock.Now()
	if c.created.IsZero() {
		c.created = now
	}
	switch {
	case now.Sub(c.created) < approvalAfter:
	case approved:
		c.note("approved", slog.LevelWarn,
			"the request for a serving certificate is approved, but nothing signs it: check that the signer's controller runs")
	default:
		c.note("pending", slog.LevelWarn,
			"the request for a serving certificate waits for its approval: kubectl certificate approve "+c.name)
	}
	return nil
}

// create creates the request, with the key of the one before if that was not answered.
func (c *Certificate) create(ctx context.Context, server Server) error {
	if c.key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		c.key = key
		c.write(requestFile, nil)
	}
	raw, err := c.target.request(c.key)
	if err != nil {
		return err
	}
	r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: raw, SignerName: c.opts.Signer,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}}
	r.Name = c.name
	if err := server.CreateSigningRequest(ctx, r); err != nil {
		return err
	}
	c.created = c.opts.Clock.Now()
	c.note("created", slog.LevelInfo, "asked the signer for a serving certificate; "+
		"unless the cluster approves it by itself: kubectl certificate approve "+c.name)
	return nil
}

// remove deletes a request that is of no use any more. A request that is gone already is no error.
func (c *Certificate) remove(ctx context.Context, server Server, r *certificatesv1.CertificateSigningRequest) error {
	c.created = time.Time{}
	err := server.DeleteSigningRequest(ctx, r)
	if apierrors.IsForbidden(err) {
		c.note("undeletable", slog.LevelWarn, "a former request for a serving certificate can't be deleted: "+
			"kubectl delete csr "+c.name+", or grant the right to delete it (snapcache config rbac)")
		return nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// refused is called for an open request that leads to nothing: first it defers the next request, so that the
// approver can look at this one, and after that time it deletes this one.
func (c *Certificate) refused(
	ctx context.Context, server Server, r *certificatesv1.CertificateSigningRequest, message, reason string,
) error {
	if c.refusedUID == r.UID {
		c.forgetKey()
		return c.remove(ctx, server, r)
	}
	c.refusedUID = r.UID
	d := c.waits.Step()
	c.after = c.opts.Clock.Now().Add(d)
	c.note("", slog.LevelError, message, "reason", reason, "retryIn", d.Round(time.Second), "served", c.serves())
	return nil
}

// accept puts an issued certificate into use.
func (c *Certificate) accept(chain []byte, server Server) error {
	h, err := c.hold(chain)
	if err != nil {
		return err
	}
	c.write(certificateFile, chain)
	c.held.Store(h)
	c.forgetKey()
	leaf := h.pair.Leaf
	c.note("", slog.LevelInfo, "the signer has issued the serving certificate",
		"until", leaf.NotAfter, "renewal", h.renew)
	c.checkTrust(h, server)
	c.after, c.created = time.Time{}, time.Time{}
	now := c.opts.Clock.Now()
	if now.Before(h.renew) {
		c.waits = refusals
		return nil
	}
	d := c.waits.Step()
	c.after = now.Add(d)
	c.note("", slog.LevelError, "the serving certificate has to be renewed already when it is issued: "+
		"set this machine's clock, or check the signer's lifetimes", "now", now, "until", leaf.NotAfter, "retryIn", d.Round(time.Second))
	return nil
}

// note logs a state of the request, once until another one follows; an empty state always.
func (c *Certificate) note(state string, level slog.Level, message string, args ...any) {
	if state != "" && state == c.noted {
		return
	}
	c.noted = state
	args = append([]any{"signer", c.opts.Signer, "request", c.name}, args...)
	c.opts.Log.Log(context.Background(), level, "kubernetesAPI: "+message, args...)
}

// noteError logs an error, if the one before was of another kind.
func (c *Certificate) noteError(ctx context.Context, err error) {
	switch {
	case err == nil:
		c.fault = ""
		return
	case ctx.Err() != nil, apierrors.IsAlreadyExists(err): // the next look finds the request whose answer was lost
		return
	}
	kind, level, message := faultOf(err)
	if kind == c.fault {
		return
	}
	c.fault = kind
	c.opts.Log.Log(ctx, level, "kubernetesAPI: "+message, "signer", c.opts.Signer, "served", c.serves(), "error", err)
}

// faultOf returns the kind of an error of the server or the network, and its text in the log.
func faultOf(err error) (kind string, level slog.Level, message string) {
	kind = string(apierrors.ReasonForError(err))
	switch {
	case apierrors.IsForbidden(err):
		return kind, slog.LevelError,
			"the agent may not ask for its serving certificate: grant it (snapcache config rbac prints the manifest)"
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return kind, slog.LevelError, "the server refuses the request for a serving certificate: check signer and nodeName"
	case apierrors.IsNotFound(err):
		return kind, slog.LevelError, "the server has no certificatesigningrequests (certificates.k8s.io/v1): " +
			"give certFile and keyFile in place of signer"
	case kind != "":
		return kind, slog.LevelWarn, "the server does not answer the request for a serving certificate, which is retried"
	}
	return "network", slog.LevelWarn,
		"the server can't be asked for the serving certificate, which is retried: check the network"
}

// noteEnd logs once that the certificate has expired.
func (c *Certificate) noteEnd(h *held, now time.Time) {
	if h == nil || h == c.outdated || !now.After(h.pair.Leaf.NotAfter) {
		return
	}
	c.outdated = h
	c.opts.Log.Error("kubernetesAPI: the serving certificate has expired, by this machine's clock; "+
		"it stays in use until the signer issues another one", "signer", c.opts.Signer, "until", h.pair.Leaf.NotAfter)
}

// serves returns a text for the certificate in use.
func (c *Certificate) serves() string {
	if h := c.held.Load(); h != nil {
		return "the signer's, until " + h.pair.Leaf.NotAfter.Format(time.RFC3339)
	}
	return "the agent's own, which pods don't trust"
}

// checkTrust logs an error if pods do not trust a certificate: they have the authorities of the cluster, as
// the agent's kubeconfig does.
func (c *Certificate) checkTrust(h *held, server Server) {
	ca, err := server.CA()
	if err == nil && len(bytes.TrimSpace(ca)) == 0 {
		err = errors.New("the agent's kubeconfig has no certificate-authority")
	}
	if err == nil {
		err = verify(h.pair, ca)
	}
	if err != nil {
		c.opts.Log.Error("kubernetesAPI: pods don't trust the serving certificate by the cluster's CA: "+
			"take a signer of that CA, or give the pods the signer's (snapcache patch --ca-configmap)",
			"signer", c.opts.Signer, "error", err)
	}
}
