package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
)

const (
	// proofAge is how long the server's answer counts whose token it is: a plugin may have another one.
	proofAge = 10 * time.Minute

	// proofTimeout is how long the server may take for it, and proofBytes its length.
	proofTimeout = 10 * time.Second
	proofBytes   = 64 << 10
)

// bearer is a bearer token, a file with one or an exec plugin, in the place of a client certificate. Only the
// server can judge it, so it is asked before the token is used for a caller. It is safe for concurrent use.
type bearer struct {
	mu     sync.Mutex // held while the server is asked, which others wait for
	config *rest.Config
	server *server // that to leads to
	to     *route
	user   string    // its owner
	at     time.Time // when the server has named it
}

// set takes the credentials of a kubeconfig, if they are a token and no certificate. client-go reads a file with
// a token again, and runs a plugin when the token ends.
func (x *bearer) set(config *rest.Config) bool {
	t := &config.TLSClientConfig
	if len(t.CertData)+len(t.KeyData) > 0 || t.CertFile+t.KeyFile != "" {
		return false
	}
	if config.BearerToken+config.BearerTokenFile == "" && config.ExecProvider == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.config, x.to = config, nil
	return true
}

// route returns the route for a user, with an error if the server does not name it as the token's owner.
func (x *bearer) route(ctx context.Context, s *server, user string, now time.Time) (*route, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.to == nil || x.server != s {
		bearing := func(config *rest.Config) *rest.Config {
			config = rest.CopyConfig(config)
			config.BearerToken, config.BearerTokenFile, config.ExecProvider = x.config.BearerToken, x.config.BearerTokenFile, x.config.ExecProvider
			return config
		}
		to, err := newRoute(bearing(s.config), bearing(s.sessions), nil)
		if err != nil {
			return nil, err
		}
		x.server, x.to, x.user = s, to, ""
	}
	if age := now.Sub(x.at); x.user == "" || age < 0 || age >= proofAge {
		owner, err := s.owner(ctx, x.to)
		if err != nil {
			return nil, fmt.Errorf("the server does not name the user of its token: %w", err)
		}
		x.user, x.at = owner, now
	}
	if x.user != user {
		return nil, fmt.Errorf("its token is of user %q", x.user)
	}
	return x.to, nil
}

// owner asks the server who it takes the sender of requests for.
func (s *server) owner(ctx context.Context, to *route) (string, error) {
	// One caller's end must not end the question that others wait for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), proofTimeout)
	defer cancel()
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		s.base.JoinPath("apis/authentication.k8s.io/v1/selfsubjectreviews").String(), strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	ctx, answered := s.await(ctx, 0)
	answer, err := to.requests.RoundTrip(r.WithContext(ctx))
	answered(err)
	if err != nil { // also that of a plugin
		return "", errors.Join(errUnreachable, err)
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	var review authenticationv1.SelfSubjectReview
	switch err := json.NewDecoder(io.LimitReader(answer.Body, proofBytes)).Decode(&review); {
	case answer.StatusCode != http.StatusCreated:
		return "", fmt.Errorf("it answers %s", answer.Status)
	case err != nil:
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
