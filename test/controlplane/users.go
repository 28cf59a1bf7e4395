package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users that every control plane has.
const (
	// Admin may do everything: it is in system:masters.
	Admin = "admin"
	// Reader may get, list and watch everything except secrets.
	Reader = "reader"
	// Stranger has a valid token and no rights but discovery.
	Stranger = "nobody"
)

// users are the known users with their groups.
var users = []struct{ name, group string }{
	{Admin, "system:masters"},
	{Reader, ""},
	{Stranger, ""},
}

// customGroups are API groups of custom resources that [Reader] may read
// although they need not exist when the control plane starts.
var customGroups = []string{"example.com"}

// loadTokens returns the token of each user, from the file if it exists.
func loadTokens(path string) (map[string]string, error) {
	tokens := make(map[string]string, len(users))
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		records, err := csv.NewReader(strings.NewReader(string(b))).ReadAll()
		if err != nil {
			return nil, fmt.Errorf("tokens: %w", err)
		}
		for _, r := range records {
			tokens[r[1]] = r[0]
		}
		return tokens, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("tokens: %w", err)
	}
	var lines strings.Builder
	for _, u := range users {
		tokens[u.name] = rand.Text()
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", tokens[u.name], u.name, u.name, u.group)
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return tokens, nil
}

// RESTConfig returns a client configuration without a rate limit. An unknown
// user gets one without credentials, which is system:anonymous.
func (cp *ControlPlane) RESTConfig(user string) *rest.Config {
	config := &rest.Config{
		Host:            cp.URL(),
		BearerToken:     cp.tokens[user],
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.caData},
		UserAgent:       "controlplane",
		QPS:             -1,
	}
	if cp.own != nil && user == Admin {
		config.CertData, config.KeyData = cp.ownAdmin.CertPEM, cp.ownAdmin.KeyPEM
	}
	return config
}

// Kubeconfig writes the kubeconfig file of a user, which needs no other file,
// and returns its path.
func (cp *ControlPlane) Kubeconfig(user string) (string, error) {
	if cp.own != nil && user == Admin {
		return cp.ownAdmin.Kubeconfig()
	}
	token, ok := cp.tokens[user]
	if !ok {
		return "", fmt.Errorf("kubeconfig: %w: %q", ErrUnknownUser, user)
	}
	return cp.writeKubeconfig(user, &clientcmdapi.AuthInfo{Token: token})
}

// writeKubeconfig writes a kubeconfig file with these credentials, and returns its path.
func (cp *ControlPlane) writeKubeconfig(user string, auth *clientcmdapi.AuthInfo) (string, error) {
	const name = "controlplane"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: cp.URL(), CertificateAuthorityData: cp.caData}
	config.AuthInfos[user] = auth
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	b, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	file := strings.ReplaceAll(user, ":", "-") + ".kubeconfig" // KUBECONFIG is separated by colons
	path := filepath.Join(cp.dir, file)
	// Renamed into place: parallel tests ask for it while others read it.
	f, err := os.CreateTemp(cp.dir, file+".") // has mode 0600
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

// bindReader gives [Reader] its rights. RBAC can only add, so "everything except secrets" is every
// other core resource by name, and all resources of every other group.
func (cp *ControlPlane) bindReader(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(Admin))
	if err != nil {
		return fmt.Errorf("reader's rights: %w", err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(cp.RESTConfig(Admin))
	if err != nil {
		return fmt.Errorf("reader's rights: %w", err)
	}
	groups, lists, err := known.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil {
		return fmt.Errorf("reader's rights: %w", err)
	}
	verbs := []string{"get", "list", "watch"}
	core := rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}}
	for _, list := range lists {
		if list.GroupVersion != corev1.SchemeGroupVersion.String() {
			continue
		}
		for _, r := range list.APIResources {
			if r.Name != "secrets" && !strings.Contains(r.Name, "/") {
				core.Resources = append(core.Resources, r.Name)
			}
		}
	}
	others := rbacv1.PolicyRule{Verbs: verbs, APIGroups: customGroups, Resources: []string{"*"}}
	for _, g := range groups {
		if g.Name != "" {
			others.APIGroups = append(others.APIGroups, g.Name)
		}
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "controlplane:" + Reader},
		Rules:      []rbacv1.PolicyRule{core, others},
	}
	_, err = client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("reader's role: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{cp.Subject(Reader)},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.RbacV1().ClusterRoleBindings().Update(ctx, binding, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("reader's binding: %w", err)
	}
	return cp.awaitReader(ctx)
}

// awaitReader waits until the authorizer has the rights, which takes some milliseconds.
func (cp *ControlPlane) awaitReader(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(cp.RESTConfig(Reader))
	if err != nil {
		return fmt.Errorf("reader's rights: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("reader's rights have no effect: %w", err)
	}
	return nil
}
