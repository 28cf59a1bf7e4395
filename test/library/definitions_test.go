package library

import (
	"context"
	"net/http"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// defineAll makes the definitions of a directory, and waits until the server serves their objects.
func defineAll(t *testing.T, c kubernetes.Interface, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var paths []string
	for _, file := range files {
		content := harness.ReadFile(t, file)
		post(t, c, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(content))
		var definition struct {
			Spec struct {
				Group    string
				Names    struct{ Plural string }
				Versions []struct {
					Name   string
					Served bool
				}
			}
		}
		require.NoError(t, yaml.Unmarshal(content, &definition))
		for _, v := range definition.Spec.Versions {
			if v.Served {
				paths = append(paths, path.Join("/apis", definition.Spec.Group, v.Name, definition.Spec.Names.Plural))
			}
		}
	}
	for _, objects := range paths {
		served := func(ctx context.Context) (bool, error) {
			return c.CoreV1().RESTClient().Get().AbsPath(objects).Param("limit", "1").Do(ctx).Error() == nil, nil
		}
		err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, harness.Patience, true, served)
		require.NoError(t, err, objects)
	}
}

// post creates an object from YAML.
func post(t *testing.T, c kubernetes.Interface, path, object string) {
	t.Helper()
	require.NoError(t, c.CoreV1().RESTClient().Verb(http.MethodPost).AbsPath(path).
		SetHeader("Content-Type", "application/yaml").Body([]byte(object)).Do(t.Context()).Error())
}
