package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/snapcache/snapcache/access"
	"github.com/snapcache/snapcache/internal/quota"
	"github.com/snapcache/snapcache/store"
)

const (
	accessReviews  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewedByUser = "alice"
)

// ofUsers is a Forwarder that takes the requests of users.
type ofUsers struct{ everything }

func (ofUsers) Takes(r *http.Request) bool { return !access.CallerOf(r.Context()).Local }

// reviewing returns a server that has all pods and nodes, the secrets of the namespace a and the jobs with the
// name x, and more, and forwards what is not cached. The cluster allows users one question.
func reviewing(t *testing.T, allowed string, asked *[]string, more ...store.Info) *Server {
	t.Helper()
	cached := func(i store.Info) *Collection {
		return &Collection{Info: func() store.Info { return i }, Description: described(store.Description{Subresources: []string{"status"}})}
	}
	all := []*Collection{
		cached(store.Info{ID: "pods", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}),
		cached(store.Info{ID: "secrets", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true, Namespace: "a"}),
		cached(store.Info{ID: "nodes", Version: "v1", Resource: "nodes", Kind: "Node"}),
		cached(store.Info{ID: "jobs", Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true, FieldSelector: "metadata.name=x"}),
	}
	for _, i := range more {
		all = append(all, cached(i))
	}
	return New(Options{
		Collections: func() []*Collection { return all },
		Review: func(_ context.Context, ask access.Request) (authorizationv1.SubjectAccessReviewStatus, error) {
			*asked = append(*asked, text(ask))
			return authorizationv1.SubjectAccessReviewStatus{Allowed: text(ask) == allowed, Reason: "so it is"}, nil
		},
		Forward: ofUsers{everything{http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a review was forwarded") })}},
	})
}

// sendReview sends a review of a caller.
func sendReview(s *Server, c *access.Caller, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return reviewed(s, c, r)
}

// reviewed answers a request of a caller.
func reviewed(s *Server, c *access.Caller, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	none := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	s.WithBodies(none).ServeHTTP(w, r.WithContext(access.WithCaller(r.Context(), c)))
	return w
}

var (
	localCaller = &access.Caller{Local: true}
	userCaller  = &access.Caller{User: authenticationv1.UserInfo{Username: reviewedByUser, UID: "1", Groups: []string{"g"}}}
)

// reviewFor returns the body of a review in the words of text, without selectors.
func reviewFor(what string) string {
	if verb, path, ok := strings.Cut(what, " /"); ok {
		return fmt.Sprintf(`{"spec":{"nonResourceAttributes":{"verb":%q,"path":"/%s"}}}`, verb, path)
	}
	p := strings.Split(what, ",")
	return fmt.Sprintf(`{"spec":{"resourceAttributes":{"verb":%q,"group":%q,"version":%q,"resource":%q,"subresource":%q,"namespace":%q,"name":%q}}}`,
		p[0], p[1], p[2], p[3], p[4], p[5], p[6])
}

// TestAccessReviews: a local caller may read what is cached, as the request itself is answered, and is told why it may
// not do anything else; about a user the cluster is asked the question of the request itself.
func TestAccessReviews(t *testing.T) {
	for _, tc := range []struct{ ask, reason, question string }{
		{"list,,v1,pods,,,", "", "list,,v1,pods,,,"},
		{"list,,,pods,,a,", "", "list,,v1,pods,,a,"},
		{"watch,,*,pods,,a,x", "", "watch,,v1,pods,,a,x"},
		{"get,,v1,pods,status,a,x", "", "get,,v1,pods,status,a,x"},
		{"get,,,pods,log,a,x", "does not allow this method", "get,,v1,pods,log,a,x"},
		{"get,,,pods,none,a,x", "could not find", "get,,v1,pods,none,a,x"},
		{"list,,,pods,status,a,", "not served here", "list,,v1,pods,status,a,"},
		{"get,,v2,pods,,a,x", "pods is not cached", "get,,v2,pods,,a,x"},
		{"get,,,secrets,,a,x", "", "get,,v1,secrets,,a,x"},
		{"get,,,secrets,,,", "secrets in the namespace a", "get,,v1,secrets,,,"},
		{"list,,,secrets,,b,", "secrets in the namespace a", "list,,v1,secrets,,b,"},
		{"get,,,nodes,,default,", "", "get,,v1,nodes,,,"},
		{"list,batch,,jobs,,a,", "with the fields metadata.name=x", "list,batch,v1,jobs,,a,"},
		{"watch,batch,,jobs,,a,x", "", "watch,batch,v1,jobs,,a,x"},
		{"watch,batch,,jobs,,a,y", "with the fields metadata.name=x", "watch,batch,v1,jobs,,a,y"},
		{"get,,,namespaces,,,a", "", "get,,v1,namespaces,,a,a"},
		{"get,,,services,,,a", "services is not cached", "get,,,services,,,a"},
		{"create,,,pods,,a,", "only get, list and watch", "create,,v1,pods,,a,"},
		{"*,*,,*,,,", "only get, list and watch", "*,*,,*,,,"},
		{"list,*,,*,,,", "*.* is not cached", "list,*,,*,,,"},
		{"get /version", "", "get /version"},
		{"post /version", "only get, list and watch", "post /version"},
		{"get /healthz", "", "get /healthz"},
		{"get /apis/batch/v1", "", "get /apis/batch/v1"},
		{"get /apis/authorization.k8s.io", "", "get /apis/authorization.k8s.io"},
		{"get /apis/none", "not served here", "get /apis/none"},
		{"get /api/v1/pods", "not served here", "get /api/v1/pods"},
	} {
		t.Run(tc.ask, func(t *testing.T) {
			var asked []string
			s := reviewing(t, tc.question, &asked,
				store.Info{ID: "namespaces", Version: "v1", Resource: "namespaces", Kind: "Namespace"},
				store.Info{ID: "jobs.v2", Group: "batch", Version: "v2", Resource: "jobs", Kind: "Job", Namespaced: true})
			w := sendReview(s, localCaller, accessReviews, reviewFor(tc.ask))
			require.Equal(t, http.StatusCreated, w.Code, w.Body)
			var review authorizationv1.SelfSubjectAccessReview
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
			require.Equal(t, tc.reason == "", review.Status.Allowed, review.Status.Reason)
			require.Contains(t, review.Status.Reason, tc.reason)
			require.Empty(t, asked, "the cluster does not know a local caller")

			w = sendReview(s, userCaller, accessReviews, reviewFor(tc.ask))
			require.Equal(t, http.StatusCreated, w.Code, w.Body)
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
			require.Equal(t, []string{tc.question}, asked)
			require.True(t, review.Status.Allowed)
			require.Equal(t, "so it is", review.Status.Reason)
			require.Equal(t, metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}, review.TypeMeta)
		})
	}
}

// TestAccessReviews_OwnStatus: what a caller sends as the status is not in the answer.
func TestAccessReviews_OwnStatus(t *testing.T) {
	const body = `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}},"status":{"denied":true,"evaluationError":"mine"}}`
	var asked []string
	s := reviewing(t, "", &asked)
	for _, c := range []*access.Caller{localCaller, userCaller} {
		answer := sendReview(s, c, accessReviews, body).Body.String()
		require.NotContains(t, answer, "denied")
		require.NotContains(t, answer, "evaluationError")
	}
}

// TestAccessReviews_Selectors: a local caller may list a part of a resource with the selectors that the request
// itself needs, and the cluster is asked with them.
func TestAccessReviews_Selectors(t *testing.T) {
	const body = `{"spec":{"resourceAttributes":{"verb":"list","group":"batch","resource":"jobs","namespace":"a",` +
		`"fieldSelector":{"rawSelector":"metadata.name=%s"},"labelSelector":{"rawSelector":"a=b"}}}}`
	for name, allowed := range map[string]bool{"x": true, "y": false} {
		var asked []string
		s := reviewing(t, "", &asked)
		w := sendReview(s, localCaller, accessReviews, fmt.Sprintf(body, name))
		require.Contains(t, w.Body.String(), fmt.Sprintf(`"allowed":%t`, allowed), w.Body)
		sendReview(s, userCaller, accessReviews, fmt.Sprintf(body, name))
		require.Equal(t, []string{"list,batch,v1,jobs,,a, fields metadata.name=" + name + " labels a=b"}, asked)
	}
}

// TestReviewBodies: a body is read in each form that a kube-apiserver reads, within a limit, and the answer is JSON.
func TestReviewBodies(t *testing.T) {
	var asked []string
	s := reviewing(t, "", &asked)
	typed := &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
	}
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(reviewScheme).SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(t, ok)
	packed, err := runtime.Encode(info.Serializer, typed)
	require.NoError(t, err)
	for _, tc := range []struct {
		name, body, contentType, accept string
		code                            int
	}{
		{"JSON", reviewFor("list,,,pods,,,"), "application/json", "", 201},
		{"JSON with parameters", reviewFor("list,,,pods,,,"), "application/json; charset=utf-8", "application/json, */*", 201},
		{"protobuf, as kubectl sends it", string(packed), runtime.ContentTypeProtobuf, "application/vnd.kubernetes.protobuf,application/json", 201},
		{"YAML", "spec: {resourceAttributes: {verb: list, resource: pods}}", "application/yaml", "", 201},
		{"answer in protobuf alone", reviewFor("list,,,pods,,,"), "", "application/vnd.kubernetes.protobuf", 406},
		{"unknown type", reviewFor("list,,,pods,,,"), "text/plain", "", 415},
		{"no type", reviewFor("list,,,pods,,,"), ";", "", 415},
		{"too large", `{"spec":"` + strings.Repeat("x", maxReview) + `"}`, "", "", 413},
		{"no JSON", `{"spec":`, "", "", 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked = nil
			w := sendReview(s, userCaller, accessReviews, tc.body, "Content-Type", tc.contentType, "Accept", tc.accept)
			require.Equal(t, tc.code, w.Code, w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			if tc.code == http.StatusCreated {
				require.Equal(t, []string{"list,,v1,pods,,,"}, asked)
			}
		})
	}
	s.opts.Review = func(context.Context, access.Request) (authorizationv1.SubjectAccessReviewStatus, error) {
		return authorizationv1.SubjectAccessReviewStatus{}, apierrors.NewTooManyRequests("busy", 1)
	}
	require.Equal(t, http.StatusTooManyRequests, sendReview(s, userCaller, accessReviews, reviewFor("list,,,pods,,,")).Code)
}

// TestReviewBodies_Held: a review counts three times against the bytes that its caller's requests may hold, of which a
// caller that is alone has half.
func TestReviewBodies_Held(t *testing.T) {
	var asked []string
	s := reviewing(t, "", &asked)
	body := reviewFor("list,,,pods,,,")
	for all, code := range map[int]int{6 * len(body): http.StatusCreated, 6*len(body) - 2: http.StatusTooManyRequests} {
		ctx := quota.WithAccount(t.Context(), quota.NewShares(int64(all)).Open(reviewedByUser))
		w := reviewed(s, userCaller, httptest.NewRequestWithContext(ctx, http.MethodPost, accessReviews, strings.NewReader(body)))
		require.Equal(t, code, w.Code, "%d bytes for all: %s", all, w.Body)
	}
	require.Len(t, asked, 1)
}

// TestRulesReviews: a local caller may read what is cached, and is told what is cached in part; a user gets the
// cluster's rules about the cached resources.
func TestRulesReviews(t *testing.T) {
	const path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	var asked []string
	s := reviewing(t, "", &asked,
		store.Info{ID: "secrets.c", Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true, Namespace: "c"})
	review := func(c *access.Caller, namespace string) (status authorizationv1.SubjectRulesReviewStatus) {
		w := sendReview(s, c, path, fmt.Sprintf(`{"spec":{"namespace":%q}}`, namespace))
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		var review authorizationv1.SelfSubjectRulesReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
		require.Equal(t, "SelfSubjectRulesReview", review.Kind)
		require.Empty(t, review.Spec, "as from a kube-apiserver")
		return review.Status
	}
	local := review(localCaller, "a")
	read := []string{"get", "list", "watch"}
	require.Equal(t, authorizationv1.ResourceRule{
		Verbs: read, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status", "pods", "pods/status", "secrets", "secrets/status"},
	}, local.ResourceRules[0])
	require.Len(t, local.ResourceRules, 1+len(reviews))
	require.True(t, local.Incomplete)
	require.Equal(t, "no rule can express what is cached in part: jobs with the fields metadata.name=x", local.EvaluationError)
	require.NotContains(t, review(localCaller, "b").ResourceRules[0].Resources, "secrets")

	want := authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{{Verbs: read, APIGroups: []string{""}, Resources: []string{"pods"}}}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	s.opts.OwnRules = func(ctx context.Context, namespace string, cached []schema.GroupVersionResource) authorizationv1.SubjectRulesReviewStatus {
		require.Equal(t, userCaller, access.CallerOf(ctx))
		require.Equal(t, "a", namespace)
		require.Len(t, cached, 4)
		return want
	}
	require.Equal(t, want, review(userCaller, "a"))
	w := sendReview(s, userCaller, path, "{}")
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "no namespace on request")
}

// TestSubjectReviews: a user gets its own name, and a local caller one that the cluster does not know.
func TestSubjectReviews(t *testing.T) {
	var asked []string
	s := reviewing(t, "", &asked)
	for _, tc := range []struct {
		of   *access.Caller
		want authenticationv1.UserInfo
	}{{localCaller, authenticationv1.UserInfo{Username: LocalUser}}, {userCaller, userCaller.User}} {
		w := sendReview(s, tc.of, "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"status":{"userInfo":{"username":"other"}}}`)
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		var review authenticationv1.SelfSubjectReview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
		require.Equal(t, tc.want, review.Status.UserInfo)
		require.False(t, review.CreationTimestamp.IsZero())
	}
	require.Empty(t, asked)
}
