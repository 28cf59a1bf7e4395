package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/snapcache/snapcache/internal/clocks"
)

// algorithms are used by a kube-apiserver to sign tokens.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}

// Keys verify the cluster's service account tokens. They are immutable. Their JSON is stable.
type Keys struct {
	Issuer string             `json:"issuer"`
	Set    jose.JSONWebKeySet `json:"keys"`

	// Audiences are the audiences of the cluster's server, as far as its reviews have named them, with the
	// time of the last one that did. Without any, the issuer is the audience, as in a server without --api-audiences.
	Audiences map[string]time.Time `json:"audiences,omitempty"`
}

const (
	// audienceAge is the age at which an audience is forgotten when the server names others.
	audienceAge = 7 * 24 * time.Hour

	// maxAudiences limits the audiences, whose number a server's administrator decides.
	maxAudiences = 16
)

// learned returns keys with audiences that the server has just named, or k if that changes little. None is
// forgotten because of a wrong clock: not before this process has run for audienceAge. A date in the
// future, which a wrong clock has made, becomes now.
func (k *Keys) learned(audiences []string, now time.Time, ran time.Duration) *Keys {
	next := *k
	next.Audiences = map[string]time.Time{}
	for _, x := range audiences[:min(len(audiences), maxAudiences)] {
		next.Audiences[x] = now // with the monotonic reading
	}
	age := func(at time.Time) clocks.Age { return clocks.AgeOf(clocks.Stamp{At: at}, clocks.Stamp{At: now}) }
	changed := false
	for x := range next.Audiences {
		changed = changed || !age(k.Audiences[x]).AtMost(audienceAge/8)
	}
	if !changed {
		return k
	}
	for x, at := range k.Audiences {
		a := age(at)
		if !a.Known() {
			at = now
		}
		old := a.Duration() >= audienceAge && ran >= audienceAge
		if _, ok := next.Audiences[x]; !ok && !old && len(next.Audiences) < maxAudiences {
			next.Audiences[x] = at
		}
	}
	return &next
}

// names reports whether one of a token's audiences is the server's.
func (k *Keys) names(audiences jwt.Audience) bool {
	if len(k.Audiences) == 0 {
		return audiences.Contains(k.Issuer)
	}
	return slices.ContainsFunc(audiences, func(x string) bool { _, ok := k.Audiences[x]; return ok })
}

// ParseKeys reads the keys of an issuer, a JSON Web Key Set.
func ParseKeys(issuer string, set []byte) (*Keys, error) {
	k := &Keys{Issuer: issuer}
	if err := json.Unmarshal(set, &k.Set); err != nil {
		return nil, fmt.Errorf("keys of tokens: %w", err)
	}
	return k, nil
}

// claims are the claims of a service account token, see "Schema for service account private claims" in
// the Kubernetes documentation.
type claims struct {
	jwt.Claims
	Kubernetes struct {
		Namespace      string   `json:"namespace"`
		ServiceAccount objectID `json:"serviceaccount"`
		Pod            objectID `json:"pod"`
		Node           objectID `json:"node"`
		Secret         objectID `json:"secret"`
	} `json:"kubernetes.io"`
}

// objectID names an object that a token is bound to; it has no name if there is none.
type objectID struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// verify returns the claims of a token if it is signed by one of the keys, for the cluster's server.
func (k *Keys) verify(token string) (*claims, error) {
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return nil, err
	}
	keys := k.Set.Keys
	if id := t.Headers[0].KeyID; id != "" {
		keys = k.Set.Key(id)
	}
	c := &claims{}
	err = errors.New("it is signed by no known key")
	for _, key := range keys {
		if err = t.Claims(key.Key, c); err == nil {
			break
		}
		err = fmt.Errorf("its signature or its content is wrong: %w", err)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case c.Issuer != k.Issuer:
		return nil, errors.New("it is of another issuer")
	case !k.names(c.Audience):
		return nil, errors.New("it is for another audience")
	case c.Expiry == nil:
		return nil, errors.New("it has no expiry")
	case c.Kubernetes.Namespace == "" || c.Kubernetes.ServiceAccount.Name == "":
		return nil, errors.New("it is not of a service account")
	case c.Subject != "system:serviceaccount:"+c.Kubernetes.Namespace+":"+c.Kubernetes.ServiceAccount.Name:
		return nil, errors.New("its subject is not its service account")
	}
	c.Audience = nil // who asks for a token names as many as it likes, and the claims are remembered
	return c, nil
}

// lack reports whether a token, which the server has accepted, is of the issuer and names none of the keys:
// the cluster has new ones.
func (k *Keys) lack(token string) bool {
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil || k == nil {
		return false
	}
	var c jwt.Claims
	return t.UnsafeClaimsWithoutVerification(&c) == nil && c.Issuer == k.Issuer && len(k.Set.Key(t.Headers[0].KeyID)) == 0
}

// user returns the user of a token, as the cluster's server describes it.
func (c *claims) user() *authenticationv1.UserInfo {
	k := &c.Kubernetes
	u := &authenticationv1.UserInfo{
		Username: c.Subject, UID: k.ServiceAccount.UID,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + k.Namespace, authenticated},
		Extra:  map[string]authenticationv1.ExtraValue{},
	}
	for name, value := range map[string]string{
		"authentication.kubernetes.io/pod-name": k.Pod.Name, "authentication.kubernetes.io/pod-uid": k.Pod.UID,
		"authentication.kubernetes.io/node-name": k.Node.Name, "authentication.kubernetes.io/node-uid": k.Node.UID,
	} {
		if value != "" {
			u.Extra[name] = authenticationv1.ExtraValue{value}
		}
	}
	if c.ID != "" {
		u.Extra[credentialID] = authenticationv1.ExtraValue{"JTI=" + c.ID}
	}
	return u
}
