package kubeapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	gopath "path"
	"strconv"
	"strings"
)

// token is the position of a list between two pages, in the form of a kube-apiserver.
type token struct {
	Version string `json:"v"`
	RV      int64  `json:"rv"` // -1 for the newest state
	Start   string `json:"start"`
}

const tokenVersion = "meta.k8s.io/v1"

// newToken returns the token that continues after the key last, relative to the list's prefix.
func newToken(rv, last string) token {
	n, _ := strconv.ParseInt(rv, 10, 64) // a collection whose resourceVersions are opaque continues in its newest state
	if n == 0 {
		n = -1
	}
	return token{Version: tokenVersion, RV: n, Start: "/" + last + "\x00"}
}

// String returns the token as clients get it.
func (t token) String() string {
	b, _ := json.Marshal(t) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads a token, with the errors of a kube-apiserver.
func parseToken(s string) (token, error) {
	var t token
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	switch {
	case t.Version != tokenVersion:
		return t, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %v", t.Version)
	case t.RV == 0:
		return t, errors.New("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.Start == "":
		return t, errors.New("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")
	}
	if key := "/" + strings.TrimPrefix(t.Start, "/"); gopath.Clean(key) != key {
		return t, fmt.Errorf("continue key is not valid: %s", t.Start)
	}
	return t, nil
}

// at returns the resourceVersion that the next page needs at least.
func (t token) at() string {
	if t.RV < 0 {
		return "0"
	}
	return strconv.FormatInt(t.RV, 10)
}

// after returns the key, relative to the list's prefix, after which the next page begins.
func (t token) after() string {
	start := strings.TrimPrefix(t.Start, "/")
	if key, ok := strings.CutSuffix(start, "\x00"); ok {
		return key
	}
	return start
}

// continueExpired refuses a token whose state is not known any more. The client can go on in the
// newest state with the token in the answer.
func continueExpired(t token) error {
	err := expired("The provided continue parameter is too old to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with " +
		"the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the " +
		"first chunk was returned and now may show up in the list.")
	t.RV = -1
	err.ErrStatus.Continue = t.String()
	return err
}
