package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	accessReviews  = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	rulesReviews   = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	subjectReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// ownReviews are reviews, most of them faulty, with the differences between the answers that are meant.
var ownReviews = []struct {
	step
	codeOnly bool // the messages name types of the server
}{
	{step: step{name: "access", path: accessReviews, body: `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"spec.nodeName=x"}}}}`}},
	{step: step{name: "without kind", path: accessReviews, body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}},"status":{"allowed":true}}`}},
	{step: step{name: "refused", path: accessReviews, body: `{"spec":{"resourceAttributes":{"verb":"delete","resource":"secrets","namespace":"kube-system"}},"status":{"allowed":true}}`}},
	{step: step{name: "path", path: accessReviews, body: `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/version"}}}`}},
	{step: step{name: "for people", path: accessReviews + "?pretty=1", body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"nothings"}}}`}},
	{step: step{name: "dry run", path: accessReviews + "?dryRun=All&fieldManager=me", body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`}},
	{step: step{name: "bad dry run", path: accessReviews + "?dryRun=x", body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"}}}`}},
	{step: step{name: "YAML", path: accessReviews, contentType: "application/yaml", body: "spec:\n  resourceAttributes: {verb: list, resource: pods}\n"}},
	{step: step{name: "bad YAML", path: accessReviews, contentType: "application/yaml", body: "kind: [\n"}},
	{step: step{name: "bad protobuf", path: accessReviews, contentType: "application/vnd.kubernetes.protobuf", body: "abc"}},
	{step: step{name: "unknown type", path: accessReviews, contentType: "text/plain", body: "{}"}},
	{step: step{name: "empty", path: accessReviews}},
	{step: step{name: "no object", path: accessReviews, body: "[]"}},
	{step: step{name: "long and bad", path: accessReviews, body: `{"spec":"` + strings.Repeat("x", 100)}},
	{step: step{name: "no spec", path: accessReviews, body: "{}"}},
	{step: step{name: "bad spec", path: accessReviews, body: `{"spec":1}`}},
	{step: step{name: "both attributes", path: accessReviews, body: `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{"path":"/a","verb":"get"}}}`}},
	{step: step{name: "metadata", path: accessReviews, body: `{"metadata":{"labels":{"a":"b"}},"spec":{}}`}},
	{step: step{name: "unknown field", path: accessReviews, body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"},"other":1}}`}},
	{step: step{name: "unknown field, strict", path: accessReviews + "?fieldValidation=Strict", body: `{"spec":{"resourceAttributes":{"verb":"list"},"other":1}}`}},
	{step: step{name: "unknown field, ignored", path: accessReviews + "?fieldValidation=Ignore", body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods"},"other":1}}`}},
	{step: step{name: "bad validation", path: accessReviews + "?fieldValidation=x", body: "{}"}},
	{step: step{name: "another version", path: accessReviews, body: `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1"}`}},
	{step: step{name: "another kind", path: accessReviews, body: `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1"}`}, codeOnly: true},
	{step: step{name: "a pod", path: accessReviews, body: `{"kind":"Pod","apiVersion":"v1"}`}, codeOnly: true},
	{step: step{name: "unknown kind", path: accessReviews, body: `{"kind":"Nothing","apiVersion":"example.com/v1"}`}, codeOnly: true},
	{step: step{name: "selector that can't be read", path: accessReviews, body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"rawSelector":"!!"}}}}`}},
	{step: step{name: "empty selectors", path: accessReviews, body: `{"spec":{"resourceAttributes":{"fieldSelector":{},"labelSelector":{}}}}`}},
	{step: step{name: "selectors twice", path: accessReviews, body: `{"spec":{"resourceAttributes":{"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}],"rawSelector":"a=b"},"labelSelector":{"rawSelector":"a in","requirements":[{"key":"!","operator":"In"}]}}}}`}},
	{step: step{name: "unknown operators", path: accessReviews, body: `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":{"requirements":[{"key":"a","operator":"Like","values":["b"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"Like"}]}}}}`}},
	{step: step{name: "read", method: "GET", path: accessReviews}},
	{step: step{name: "replaced", method: "PUT", path: accessReviews}},
	{step: step{name: "named", path: accessReviews + "/x", body: "{}"}},
	{step: step{name: "in a namespace", path: "/apis/authorization.k8s.io/v1/namespaces/a/selfsubjectaccessreviews", body: "{}"}},
	{step: step{name: "subject", path: subjectReviews, body: `{"metadata":{"name":"x"},"status":{"userInfo":{"username":"me"}}}`}},
	{step: step{name: "bad subject", path: subjectReviews, body: `{"metadata":{"name":1}}`}},
	{step: step{name: "rules", path: rulesReviews, body: `{"metadata":{"name":"x"},"spec":{"namespace":"ns"}}`}},
	{step: step{name: "rules of no namespace", path: rulesReviews, body: `{"spec":{}}`}},
	{step: step{name: "rules, strict", path: rulesReviews + "?fieldValidation=Strict", body: `{"spec":{"namespace":"ns","x":1}}`}},
}

var (
	managed = regexp.MustCompile(`,?\\?"managedFields\\?":\[.*?\}\]|,?\s*"managedFields": \[[^$]*?\n    \]\n  `)
	created = regexp.MustCompile(`"creationTimestamp":"[^"]*"`)
	allowed = regexp.MustCompile(`RBAC: allowed by (?:[^"\\]|\\.)*`) // a server names any of the bindings that allow a request
)

// TestReviewsBesideServer: a review has the answer of a kube-apiserver, apart from managedFields.
func TestReviewsBesideServer(t *testing.T) {
	s, users := reviewSite(t, "reviews-beside", true)
	for _, u := range users {
		direct, cached := u.at(t, restConfig(t, s.server)), u.at(t, restConfig(t, s.cached))
		for _, x := range ownReviews {
			if x.method == "" {
				x.method = http.MethodPost
			}
			want, got := direct.send(t, x.step, "ns"), cached.send(t, x.step, "ns")
			if x.codeOnly {
				want, got = withoutReason(want), withoutReason(got)
			}
			require.Equal(t, plainReview(want), plainReview(got), x.name)
		}
	}
}

// plainReview returns an answer without what differs from answer to answer. Rules are in no order.
func plainReview(answer string) string {
	answer = created.ReplaceAllString(managed.ReplaceAllString(answer, ""), `"creationTimestamp":""`)
	answer = allowed.ReplaceAllString(answer, "RBAC: allowed")
	head, body, _ := strings.Cut(answer, "\n")
	var review authorizationv1.SelfSubjectRulesReview
	if json.Unmarshal([]byte(body), &review) == nil && review.Kind == "SelfSubjectRulesReview" {
		return head + fmt.Sprint(sortedRules(review.Status))
	}
	body = strings.ReplaceAll(strings.ReplaceAll(body, "{,", "{"), `"metadata": {}`, `"metadata": {}`)
	return head + "\n" + body
}

// withoutReason returns an answer up to the reason why another kind is refused.
func withoutReason(answer string) string {
	begin, _, _ := strings.Cut(answer, "SelfSubjectAccessReview: ")
	code, text, _ := strings.Cut(begin, "\n")
	return code[:3] + text
}

// sortedRules returns rules in an order.
func sortedRules(status authorizationv1.SubjectRulesReviewStatus) (all []string) {
	for _, r := range status.ResourceRules {
		all = append(all, fmt.Sprint(r))
	}
	for _, r := range status.NonResourceRules {
		all = append(all, fmt.Sprint(r))
	}
	slices.Sort(all)
	return append(all, fmt.Sprint(status.Incomplete, status.EvaluationError))
}

// reviewSite returns an agent that lets in users, and users of each kind of rights and with certificates.
func reviewSite(t *testing.T, namespace string, rules bool) (*site, []accessUser) {
	t.Helper()
	users, kubeconfigs := newCertificates(t, namespace)
	s := newSiteOf(t, shared.plane, accessResources(rules), func(s *site) {
		s.access, s.identities = true, kubeconfigs
	})
	require.NoError(t, s.agent.await(t.Context(), s.resources))
	accounts := newUsers(t, namespace, 30)
	s.awaitUsers(accounts)
	for _, u := range accounts {
		users = append(users, u)
	}
	return s, users
}

// matrixReview is a review and the request that it is about.
type matrixReview struct {
	step
	body string
}

// matrixReviews returns the reviews of the requests of the test of access: reads, watches and writes.
func matrixReviews(t *testing.T) (all []matrixReview) {
	t.Helper()
	requests := accessWrites()
	for _, path := range accessReads() {
		requests = append(requests, step{name: path, method: http.MethodGet, path: path})
	}
	for _, x := range requests {
		u, err := url.Parse(x.path)
		require.NoError(t, err)
		a := authorizationv1.SelfSubjectAccessReviewSpec{}
		if isDocument(u.Path) {
			a.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: u.Path, Verb: "get"}
			all = append(all, newMatrixReview(x, a))
			continue
		}
		r := &authorizationv1.ResourceAttributes{Version: "v1"}
		parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(u.Path, "/api/"), "/apis/"), "/")
		if strings.HasPrefix(u.Path, "/apis/") {
			r.Group, parts = parts[0], parts[1:]
		}
		parts = parts[1:] // the version
		if parts[0] == "namespaces" {
			r.Namespace, parts = parts[1], parts[2:]
		}
		r.Resource = parts[0]
		if len(parts) > 1 {
			r.Name = parts[1]
		}
		selector := u.Query().Get("fieldSelector")
		if selector != "" {
			r.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: selector}
			_, r.Name, _ = strings.Cut(selector, "=")
		}
		r.Verb = verbOf(x.method, len(parts) > 1, u.Query().Has("watch"))
		a.ResourceAttributes = r
		all = append(all, newMatrixReview(x, a))
		if r.Version = ""; selector == "" {
			all = append(all, newMatrixReview(x, a)) // as kubectl asks
		}
	}
	return all
}

// verbOf returns the verb of a request, as a kube-apiserver reads it.
func verbOf(method string, named, watch bool) string {
	switch {
	case method != http.MethodGet:
		return map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[method]
	case watch:
		return "watch"
	case named:
		return "get"
	}
	return "list"
}

func newMatrixReview(of step, spec authorizationv1.SelfSubjectAccessReviewSpec) matrixReview {
	raw, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{Spec: spec})
	if err != nil {
		panic(err)
	}
	return matrixReview{of, string(raw)}
}

// verb returns the verb that a review asks about.
func (m matrixReview) verb() string {
	return regexp.MustCompile(`"verb":"(\w+)"`).FindStringSubmatch(m.body)[1]
}

// codeOf sends a request, and returns the code and the body of the answer. A write is not forwarded.
func (c *caller) codeOf(t *testing.T, x step) (code int, body string) {
	t.Helper()
	if x.method == http.MethodGet {
		return c.get(t, x.path)
	}
	answer := c.send(t, x, "ns")
	code, err := strconv.Atoi(answer[:3])
	require.NoError(t, err)
	if code != http.StatusForbidden {
		require.Equal(t, http.StatusMethodNotAllowed, code, answer)
	}
	return code, answer
}

// review sends a review, and returns its status.
func (c *caller) review(t *testing.T, body string) authorizationv1.SubjectAccessReviewStatus {
	t.Helper()
	answer, err := c.http.Post(c.base+accessReviews, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusCreated, answer.StatusCode, body)
	var review authorizationv1.SelfSubjectAccessReview
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&review))
	return review.Status
}

// TestReviewMatrix: for users with each kind of rights, a review of a read, a watch or a write allows it if the agent
// does, which answers an allowed write with 405, while the kube-apiserver can be reached and while it can't, after a restart, and then by the same decisions.
func TestReviewMatrix(t *testing.T) {
	for _, rules := range []bool{false, true} {
		t.Run(fmt.Sprintf("RBAC objects %t", rules), func(t *testing.T) {
			s, users := reviewSite(t, fmt.Sprintf("reviews-%t", rules), rules)
			matrix := matrixReviews(t)
			compare := func(when string) {
				allowed, refused := map[string]int{}, map[string]int{}
				for _, u := range users {
					c := u.at(t, restConfig(t, s.cached))
					for _, x := range matrix {
						code, text := c.codeOf(t, x.step)
						status := c.review(t, x.body)
						require.Equal(t, code != http.StatusForbidden, status.Allowed, "%s %s %s: %d %s %s", when, c.name, x.body, code, text, status.Reason)
						if status.Allowed {
							allowed[x.verb()]++
							continue
						}
						refused[x.verb()]++
						if when == "offline" {
							require.Contains(t, status.Reason, strings.TrimPrefix(notRemembered, ": "))
						}
					}
				}
				t.Logf("%s: allowed %v, refused %v", when, allowed, refused)
				for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete"} {
					require.Greater(t, allowed[verb], len(users)/10, verb)
					require.Greater(t, refused[verb], len(users)/10, verb)
				}
			}
			compare("online")
			s.link.Down()
			s.stop()
			s.start()
			compare("offline")
			s.link.Up()
		})
	}
}

// kubeconfigOf returns the path of a user's kubeconfig for the server of another one.
func kubeconfigOf(t *testing.T, server string, u accessUser) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(server)
	require.NoError(t, err)
	for name := range config.AuthInfos {
		info := clientcmdapi.NewAuthInfo()
		switch u := u.(type) {
		case user:
			info.Token = u.token
		case certified:
			info.ClientCertificateData, info.ClientKeyData = u.CertPEM, u.KeyPEM
		}
		config.AuthInfos[name] = info
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// TestKubectlOwnRights: kubectl's questions about one's own rights have the kube-apiserver's answers, while it can be
// reached and while it can't.
func TestKubectlOwnRights(t *testing.T) {
	s, users := reviewSite(t, "kubectl-rights", true)
	type asked struct{ user, args string }
	want := map[asked]output{}
	all := []string{
		"auth can-i get pods", "auth can-i list pods -n ns", "auth can-i list pods -A", "auth can-i watch widgets.lab.example.com -n ns", "auth can-i list nodes",
		"auth can-i create pods", "auth can-i get pods/log", "auth can-i get /version", "auth can-i get /metrics", "auth can-i * *",
		"auth can-i --list", "auth can-i --list -n ns", "auth whoami -o json",
	}
	plain := func(o output) output {
		o = o.settled()
		o.stdout = regexp.MustCompile(`"creationTimestamp": "[^"]*"`).ReplaceAllString(o.stdout, "")
		o.stdout = regexp.MustCompile(`no - .*`).ReplaceAllString(o.stdout, "no")
		lines := strings.Split(o.stdout, "\n") // kubectl sorts rules by a part of their columns
		slices.Sort(lines)
		o.stdout = strings.Join(lines, "\n")
		return o
	}
	some := []accessUser{users[0], users[2], users[3+1], users[3+4], users[3+5], users[3+29]}
	for _, u := range some {
		for _, args := range all {
			id := asked{u.at(t, restConfig(t, s.server)).name, args}
			want[id] = plain(s.kubectl(kubeconfigOf(t, s.server, u), args))
			require.Equal(t, want[id], plain(s.kubectl(kubeconfigOf(t, s.cached, u), args)), "%v online", id)
		}
	}
	s.link.Down()
	s.stop()
	s.start()
	for _, u := range some {
		for _, args := range all {
			id := asked{u.at(t, restConfig(t, s.server)).name, args}
			require.Equal(t, want[id], plain(s.kubectl(kubeconfigOf(t, s.cached, u), args)), "%v offline", id)
		}
	}
	own := s.kubectl(s.cached, "auth whoami -o jsonpath={.status.userInfo.username}")
	require.Equal(t, "snapcache:local", own.stdout, own.stderr)
	for args, want := range map[string]string{"auth can-i list pods": "yes", "auth can-i create pods": "no"} {
		require.Contains(t, s.kubectl(s.cached, args).stdout, want, args)
	}
	require.Contains(t, s.kubectl(s.cached, "auth can-i --list").stdout, "pods")
	s.link.Up()
}
