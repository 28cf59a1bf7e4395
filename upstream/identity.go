package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// acceptMetadata asks for the metadata of one object, and accepts the whole object from servers
// that can't omit the rest.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Identity returns the identity of the cluster: "uid:" and the UID of the namespace kube-system. If
// the server forbids that read (403) or has no such namespace (404), it is "ca:" and a digest of
// the CA and of the server's host and port. The two forms can't be compared: after a change of
// permissions one cluster may answer with the other form. Every other failure is an error, never
// another identity.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	body, err := c.get(ctx, acceptMetadata, "api", "v1", "namespaces", "kube-system")
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return c.caIdentity()
	}
	if err != nil {
		return "", fmt.Errorf("identity of the cluster: %w", err)
	}
	uid := gjson.GetBytes(body, "metadata.uid")
	if uid.Type != gjson.String || uid.Str == "" {
		return "", errors.New("identity of the cluster: the server's answer has no UID for the namespace kube-system: " + hintNotKubernetes)
	}
	return "uid:" + uid.Str, nil
}

func (c *Cluster) caIdentity() (string, error) {
	ca := c.cfg.CAData
	if len(ca) == 0 && c.cfg.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(c.cfg.CAFile); err != nil {
			return "", fmt.Errorf("identity of the cluster: read its CA: %w", err)
		}
	}
	h := sha256.New()
	h.Write(ca)
	h.Write([]byte(c.base.Host))
	return "ca:" + hex.EncodeToString(h.Sum(nil)), nil
}
