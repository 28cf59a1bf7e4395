package tokens

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/snapcache/snapcache/access"
)

// maxBytes limits the bodies of requests and answers that are remembered. A usual answer has 1.5 KiB.
const maxBytes = 16 << 10

var (
	gvk    = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	codecs = func() serializer.CodecFactory {
		scheme := runtime.NewScheme()
		if err := authenticationv1.AddToScheme(scheme); err != nil {
			panic(err) // the types are part of the program
		}
		return serializer.NewCodecFactory(scheme)
	}()
	mediaTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}
)

// serializerOf returns the serializer of a Content-Type, JSON for none, as in a kube-apiserver.
func serializerOf(contentType string) (runtime.Serializer, bool) {
	mediaType := runtime.ContentTypeJSON
	if contentType != "" {
		mediaType, _, _ = mime.ParseMediaType(contentType) // of a wrong one nothing is remembered
	}
	if !slices.Contains(mediaTypes, mediaType) {
		return nil, false
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	return info.Serializer, ok
}

// decode reads a TokenRequest. It returns nil if that is not possible, without the reason: it may have
// a token in it.
func decode(contentType string, body []byte) *authenticationv1.TokenRequest {
	s, ok := serializerOf(contentType)
	if !ok {
		return nil
	}
	o, _, err := s.Decode(body, &gvk, &authenticationv1.TokenRequest{})
	if err != nil {
		return nil
	}
	t, _ := o.(*authenticationv1.TokenRequest)
	return t
}

// request is a caller's request for a token.
type request struct {
	caller          string // its identity
	namespace, name string // of the service account
	id              string // of everything that has to be equal
}

// read parses a request for a token, and returns a request with the same body to pass on. The first is nil
// if the answer is not to be remembered.
func read(r *http.Request) (*request, *http.Request) {
	namespace, name, ok := serviceAccount(r)
	caller := access.CallerOf(r.Context())
	if !ok || caller == nil || caller.Local || r.URL.Query().Has("dryRun") || r.Header.Get("Content-Encoding") != "" {
		return nil, r
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
	on := r.WithContext(r.Context())
	on.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil || len(body) > maxBytes {
		return nil, on
	}
	t := decode(r.Header.Get("Content-Type"), body)
	if t == nil {
		return nil, on
	}
	ask := &request{caller: digest(caller.ID()), namespace: namespace, name: name}
	audiences := slices.Compact(slices.Sorted(slices.Values(t.Spec.Audiences)))
	parts := append([]string{ask.caller, namespace, name, fmt.Sprint(len(audiences))}, audiences...)
	if b := t.Spec.BoundObjectRef; b != nil {
		parts = append(parts, b.APIVersion, b.Kind, b.Name, string(b.UID))
	}
	ask.id = digest(parts...)
	return ask, on
}

// serviceAccount returns the service account whose token a request asks for.
func serviceAccount(r *http.Request) (namespace, name string, ok bool) {
	p := strings.Split(r.URL.Path, "/")
	ok = r.Method == http.MethodPost && r.URL.RawPath == "" && len(p) == 8 &&
		slices.Equal([]string{p[0], p[1], p[2], p[3], p[5], p[7]}, []string{"", "api", "v1", "namespaces", "serviceaccounts", "token"})
	if !ok {
		return "", "", false
	}
	namespace, name = p[4], p[6]
	return namespace, name, namespace != "" && name != ""
}

// digest returns a hash of values, which differs from all others'.
func digest(values ...string) string {
	h := sha256.New()
	for _, v := range values {
		_, _ = fmt.Fprintf(h, "%d:%s", len(v), v) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
