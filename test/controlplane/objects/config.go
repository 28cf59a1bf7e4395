package objects

import (
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMap returns configmap number i of a namespace: a YAML file of one to
// four KB and a few settings.
func ConfigMap(namespace string, i int, seed int64) *corev1.ConfigMap {
	a := appOf(i)
	s := newSource("configmap", namespace, i, seed)
	var file strings.Builder
	fmt.Fprintf(&file, "# %s of %s\nlisten: :%d\nrevision: %s\nrules:\n", a.name, namespace, a.port, s.hex(40))
	for n := range 10 + s.IntN(30) {
		fmt.Fprintf(&file, "- id: %s-%03d\n  match: sku-%d..%d\n  percent: %d\n  until: 2026-%02d-%02d\n",
			s.text(6), n, s.IntN(10000), 10000+s.IntN(90000), s.IntN(60), 1+s.IntN(12), 1+s.IntN(28))
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta(a, namespace, fmt.Sprintf("%s-config-%d", a.name, i)),
		Data: map[string]string{
			"config.yaml": file.String(),
			"log-level":   s.from("info", "debug", "warn"),
			"shop-id":     value("SHOP_ID", namespace, s),
			"upstream":    value("UPSTREAM_URL", namespace, s),
		},
	}
}

// Secret returns secret number i of a namespace: a password, a token and a
// certificate, none of which compress.
func Secret(namespace string, i int, seed int64) *corev1.Secret {
	a := appOf(i)
	s := newSource("secret", namespace, i, seed)
	var certificate strings.Builder
	certificate.WriteString("-----BEGIN CERTIFICATE-----\n")
	for range 16 {
		certificate.WriteString(base64.StdEncoding.EncodeToString(s.bytes(48)) + "\n")
	}
	certificate.WriteString("-----END CERTIFICATE-----\n")
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(a, namespace, fmt.Sprintf("%s-credentials-%d", a.name, i)),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			"password": []byte(s.text(32)),
			"token":    []byte(base64.RawURLEncoding.EncodeToString(s.bytes(96))),
			"ca.crt":   []byte(certificate.String()),
		},
	}
}

// meta returns the metadata of an object that is deployed with an application.
func meta(a app, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: namespace,
		Labels: map[string]string{
			"app.kubernetes.io/name":       a.name,
			"app.kubernetes.io/instance":   a.name + "-" + namespace,
			"app.kubernetes.io/managed-by": "fleet",
			"example.com/tier":             a.tier,
		},
		Annotations: map[string]string{"example.com/owner": "team-" + a.tier},
	}
}
