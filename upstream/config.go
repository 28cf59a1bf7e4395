package upstream

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// hintGive is the hint for errors that leave no usable kubeconfig.
const hintGive = "give one with --kubeconfig or in $KUBECONFIG"

// LoadConfig returns the configuration of the connection to the server.
//
// If path is not empty, only that file is read, as kubectl does with --kubeconfig. Otherwise the
// first of these is used: the files in $KUBECONFIG, the service account of the pod that this
// process runs in, ~/.kube/config.
//
// The client's own rate limit is off: a cache sends few requests, and a limit would only delay its
// watches. The caller may set UserAgent to one with its version. Errors are [*ConfigError]s of one
// line with a hint.
func LoadConfig(path string) (*rest.Config, error) {
	cfg, err := findConfig(path)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "snapcache (" + runtime.GOOS + "/" + runtime.GOARCH + ")"
	cfg.QPS = -1
	return cfg, nil
}

func findConfig(path string) (*rest.Config, error) {
	if path != "" {
		return loadFiles(path, []string{path})
	}
	if env := os.Getenv("KUBECONFIG"); env != "" {
		return loadFiles(env, existing(filepath.SplitList(env)))
	}
	cluster, clusterErr := rest.InClusterConfig()
	if clusterErr == nil {
		return cluster, nil
	}
	if home, err := os.UserHomeDir(); err == nil {
		// If a pod has no service account token, the file may still exist.
		file := filepath.Join(home, ".kube", "config")
		if len(existing([]string{file})) > 0 {
			return loadFiles(file, []string{file})
		}
	}
	if !errors.Is(clusterErr, rest.ErrNotInCluster) {
		return nil, &ConfigError{
			Err:  errors.New("this runs in a pod, but its service account can't be used: " + clusterErr.Error()),
			Hint: "mount the service account's token, or " + hintGive,
		}
	}
	return nil, &ConfigError{Err: ErrNoConfig, Hint: hintGive}
}

// existing drops the files that don't exist, as kubectl does with those in $KUBECONFIG. A file that
// can't be examined stays in the list, so that loading reports it.
func existing(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		_, err := os.Stat(f)
		return f == "" || errors.Is(err, fs.ErrNotExist)
	})
}

// loadFiles reads and merges files. Errors refer to them as name.
func loadFiles(name string, files []string) (*rest.Config, error) {
	if len(files) == 0 {
		return nil, &ConfigError{Path: name, Err: fs.ErrNotExist, Hint: hintGive}
	}
	for _, f := range files {
		if err := checkFile(f); err != nil {
			return nil, err
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files}
	raw, err := rules.Load()
	if err != nil {
		return nil, &ConfigError{Path: name, Err: err, Hint: "the file is corrupt or not a kubeconfig"}
	}
	if err := checkContext(raw); err != nil {
		err.Path = name
		return nil, err
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, raw.CurrentContext, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, &ConfigError{Path: name, Err: err, Hint: "correct the file"}
	}
	return cfg, nil
}

// checkFile finds the common faults of a file, which client-go's loader reports in several lines or
// ignores.
func checkFile(path string) error {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &ConfigError{Path: path, Err: errors.New("no such file"), Hint: hintGive}
	case errors.Is(err, fs.ErrPermission):
		return &ConfigError{Path: path, Err: errors.New("permission denied"), Hint: "make it readable for the user this runs as"}
	case err != nil:
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return &ConfigError{Path: path, Err: err, Hint: hintGive}
	case len(bytes.TrimSpace(data)) == 0:
		return &ConfigError{Path: path, Err: errors.New("the file is empty"), Hint: hintGive}
	}
	return nil
}

func checkContext(raw *clientcmdapi.Config) *ConfigError {
	if raw.CurrentContext == "" {
		return &ConfigError{Err: errors.New("no current-context"), Hint: "choose one with kubectl config use-context" + contextNames(raw)}
	}
	ctx := raw.Contexts[raw.CurrentContext]
	if ctx == nil {
		return &ConfigError{Err: errors.New("the current-context " + raw.CurrentContext + " is not in the file"), Hint: "choose one with kubectl config use-context" + contextNames(raw)}
	}
	if raw.Clusters[ctx.Cluster] == nil {
		return &ConfigError{Err: errors.New("the cluster " + quoteEmpty(ctx.Cluster) + " of context " + raw.CurrentContext + " is not in the file"), Hint: "correct the file"}
	}
	if ctx.AuthInfo != "" && raw.AuthInfos[ctx.AuthInfo] == nil {
		// Otherwise client-go would send no credential, and the server would answer 401.
		return &ConfigError{Err: errors.New("the user " + ctx.AuthInfo + " of context " + raw.CurrentContext + " is not in the file"), Hint: "correct the file"}
	}
	return nil
}

func contextNames(raw *clientcmdapi.Config) string {
	if len(raw.Contexts) == 0 {
		return ""
	}
	return " (there are: " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ") + ")"
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}
