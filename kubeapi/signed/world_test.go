package signed

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"github.com/snapcache/snapcache/config"
	"github.com/snapcache/snapcache/internal/clocks/clockstest"
	"github.com/snapcache/snapcache/internal/logging/logtest"
)

const day = 24 * time.Hour

// authority signs requests.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(100 * 365 * day),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{parsed, key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *authority) pem(t *testing.T) []byte {
	t.Helper()
	raw, err := cert.EncodeCertificates(a.cert)
	require.NoError(t, err)
	return raw
}

// sign returns a certificate for a request, with changes.
func (a *authority) sign(t *testing.T, request []byte, lifetime time.Duration, change ...func(*x509.Certificate)) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	r, err := x509.ParseCertificateRequest(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, r.CheckSignature())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses,
		PublicKey: r.PublicKey, NotBefore: time.Now(), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, fn := range change {
		fn(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, template.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := cert.EncodeCertificates(&x509.Certificate{Raw: der})
	require.NoError(t, err)
	return raw
}

// scripted is a server with requests, and a controller that answers new ones.
type scripted struct {
	t  *testing.T
	mu sync.Mutex

	requests map[string]*certificatesv1.CertificateSigningRequest
	created  []time.Time
	asked    int
	fail     func(verb string) error                           // nil for none
	answer   func(r *certificatesv1.CertificateSigningRequest) // of a new request; nil for none
	ca       []byte
}

var requestsResource = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}

func (s *scripted) begin(verb string) (func(), error) {
	s.mu.Lock()
	s.asked++
	if s.fail != nil {
		if err := s.fail(verb); err != nil {
			s.mu.Unlock()
			return nil, err
		}
	}
	return s.mu.Unlock, nil
}

func (s *scripted) CreateSigningRequest(_ context.Context, r *certificatesv1.CertificateSigningRequest) error {
	end, err := s.begin("create")
	if err != nil {
		return err
	}
	defer end()
	if s.requests[r.Name] != nil {
		return apierrors.NewAlreadyExists(requestsResource, r.Name)
	}
	s.created = append(s.created, time.Now())
	r = r.DeepCopy()
	r.UID = types.UID(fmt.Sprint(len(s.created)))
	s.requests[r.Name] = r
	if s.answer != nil {
		s.answer(r)
	}
	return nil
}

func (s *scripted) SigningRequest(_ context.Context, name string) (*certificatesv1.CertificateSigningRequest, error) {
	end, err := s.begin("get")
	if err != nil {
		return nil, err
	}
	defer end()
	if r := s.requests[name]; r != nil {
		return r.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(requestsResource, name)
}

func (s *scripted) DeleteSigningRequest(_ context.Context, r *certificatesv1.CertificateSigningRequest) error {
	end, err := s.begin("delete")
	if err != nil {
		return err
	}
	defer end()
	if found := s.requests[r.Name]; found == nil || found.UID != r.UID {
		return apierrors.NewNotFound(requestsResource, r.Name)
	}
	delete(s.requests, r.Name)
	return nil
}

func (s *scripted) CA() ([]byte, error) { return s.ca, nil }

// the returns the only request.
func (s *scripted) the() *certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.t, s.requests, 1)
	for _, r := range s.requests {
		return r
	}
	return nil
}

// do changes the server.
func (s *scripted) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// creations returns how many requests were created.
func (s *scripted) creations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created)
}

func set(r *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) {
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: condition, Status: corev1.ConditionTrue, Reason: "Test", Message: "because",
	})
}

// world is an agent with a signer.
type world struct {
	*scripted
	clock *clockstest.Moved
	by    *authority
	opts  Options
	log   *logtest.Buffer
	c     *Certificate
	stop  func()
}

// test runs a test in a bubble, with an agent that has run for a minute.
func test(t *testing.T, name string, fn func(*world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			by := newAuthority(t)
			w := &world{
				scripted: &scripted{t: t, requests: map[string]*certificatesv1.CertificateSigningRequest{}, ca: by.pem(t)},
				clock:    &clockstest.Moved{}, by: by, log: &logtest.Buffer{},
			}
			w.opts = Options{
				Signer: config.SignerKubeletServing, NodeName: "edge-1", Host: "10.0.0.5", Dir: dir, Owner: newKey(t).Public(),
				Clock: w.clock, Log: slog.New(slog.NewTextHandler(w.log, nil)),
			}
			fn(w)
			if w.stop != nil {
				w.stop()
			}
		})
	})
}

// start starts the agent, or starts it again.
func (w *world) start() {
	w.t.Helper()
	if w.stop != nil {
		w.stop()
	}
	var err error
	w.c, err = Open(w.opts)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.c.Run(ctx, w.scripted) }()
	w.stop = func() { cancel(); <-done }
	synctest.Wait()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

// approving makes the server issue a certificate for each request.
func (w *world) approving(lifetime time.Duration, change ...func(*x509.Certificate)) {
	w.do(func() {
		w.answer = func(r *certificatesv1.CertificateSigningRequest) {
			set(r, certificatesv1.CertificateApproved)
			r.Status.Certificate = w.by.sign(w.t, r.Spec.Request, lifetime, change...)
		}
	})
}

// serial returns the serial number of the certificate in use; nil for the agent's own.
func (w *world) serial() *big.Int {
	if pair := w.c.Get(); pair != nil {
		return pair.Leaf.SerialNumber
	}
	return nil
}

// logged requires how many lines of the log contain a text.
func (w *world) logged(want int, text string) {
	w.t.Helper()
	require.Equal(w.t, want, strings.Count(w.log.String(), text), "%q in\n%s", text, w.log)
}

var errAway = errors.New("dial tcp 10.0.0.1:6443: connect: no route to host")
