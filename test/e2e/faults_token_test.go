package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/snapcache/snapcache/test/controlplane"
	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// tokenLife is long enough for an agent to start with a token and to catch up. A server issues no
// token for less than ten minutes, but accepts one that is signed with its key.
const tokenLife = 40 * time.Second

// newAccount creates a service account with all permissions.
func (f *faults) newAccount(t *testing.T) *corev1.ServiceAccount {
	t.Helper()
	client := harness.Clientset(t, f.cp.RESTConfig(controlplane.Admin))
	account, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-" + strconv.FormatUint(f.random.Uint64(), 36)},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return account
}

// sign returns a token of an account, like one from the server.
func (f *faults) sign(t *testing.T, account *corev1.ServiceAccount, life time.Duration) string {
	t.Helper()
	block, _ := pem.Decode(harness.ReadFile(t, filepath.Join(f.cp.Dir(), "pki", "service-account.key")))
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)
	const issuer = "https://kubernetes.default.svc"
	now := time.Now()
	part := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]any{"alg": "ES256"}) + "." + part(map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(),
		"kubernetes.io": map[string]any{
			"namespace": account.Namespace, "serviceaccount": map[string]any{"name": account.Name, "uid": account.UID},
		},
	})
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	require.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// tokenExpired gives an agent a token that expires, and then a new one.
func tokenExpired(t *testing.T, f *faults, change func()) {
	account := f.newAccount(t)
	f.a.stop() // it reads the file every minute only
	token := f.sign(t, account, tokenLife)
	f.g.giveToken(t, token)
	f.a = f.x.start()
	f.a.awaitCaughtUp(anywhere(faultIDs...))

	cfg := rest.AnonymousClientConfig(f.cp.RESTConfig(controlplane.Admin))
	cfg.BearerToken = token
	client := harness.Clientset(t, cfg)
	poll(t, "the token has expired", nil, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil && !apierrors.IsUnauthorized(err) {
			return false, err
		}
		return err != nil, nil
	})
	f.g.Down()
	f.g.Up()
	f.a.awaitProblem("configmaps", "credential")
	change()
	f.g.giveToken(t, f.sign(t, account, time.Hour))
	f.a.awaitCaughtUp(anywhere(faultIDs...))

	another := "another " + strconv.FormatUint(f.random.Uint64(), 36) // for the next agent
	f.g.accept(another)
	f.g.giveToken(t, another)
}
