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

	"github.com/snapcache/snapcache/store"
)

const (
	hintGive    = "give one with --kubeconfig or in $KUBECONFIG"
	hintCorrect = "correct the file"
)

// LoadConfig returns the configuration of the connection to the server.
//
// If path is not empty, only that file is read, as kubectl does with --kubeconfig. Otherwise the
// first of these is used: the files in $KUBECONFIG, the service account of the pod that this
// process runs in, ~/.kube/config.
//
// context is the context that is used; empty for the current one.
//
// The client's own rate limit is off: a cache sends few requests, and a limit would only delay its
// watches. The caller may set UserAgent to one with its version. An error is one line with a hint.
func LoadConfig(path, context string) (*rest.Config, error) {
	cfg, err := findConfig(path, context)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "snapcache (" + runtime.GOOS + "/" + runtime.GOARCH + ")"
	cfg.QPS = -1
	return cfg, nil
}

func findConfig(path, context string) (*rest.Config, error) {
	if path != "" {
		return loadFiles(path, []string{path}, context)
	}
	if env := os.Getenv("KUBECONFIG"); env != "" {
		return loadFiles(env, existing(filepath.SplitList(env)), context)
	}
	cluster, clusterErr := rest.InClusterConfig()
	switch {
	case clusterErr == nil && context != "":
		return nil, configError("", "a pod's service account has no context "+context, hintGive)
	case clusterErr == nil:
		return cluster, nil
	}
	if home, err := os.UserHomeDir(); err == nil {
		// If a pod has no service account token, the file may still exist.
		file := filepath.Join(home, ".kube", "config")
		if len(existing([]string{file})) > 0 {
			return loadFiles(file, []string{file}, context)
		}
	}
	if !errors.Is(clusterErr, rest.ErrNotInCluster) {
		return nil, configError("", "this runs in a pod, but its service account can't be used: "+clusterErr.Error(),
			"mount the service account's token, or "+hintGive)
	}
	return nil, configError("", "no kubeconfig was given and none was found", hintGive)
}

// existing drops the files that don't exist, as kubectl does with files in $KUBECONFIG. A file that
// can't be examined stays in the list, so that loading reports it.
func existing(files []string) []string {
	return slices.DeleteFunc(files, func(f string) bool {
		_, err := os.Stat(f)
		return f == "" || errors.Is(err, fs.ErrNotExist)
	})
}

// loadFiles reads and merges files. Errors refer to them as name.
func loadFiles(name string, files []string, context string) (*rest.Config, error) {
	if len(files) == 0 {
		return nil, configError(name, fs.ErrNotExist.Error(), hintGive)
	}
	for _, f := range files {
		if err := checkFile(f); err != nil {
			return nil, err
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files}
	raw, err := rules.Load()
	if err != nil {
		return nil, configError(name, err.Error(), "the file is corrupt or not a kubeconfig")
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if fault, hint := checkContext(raw, context); fault != "" {
		return nil, configError(name, fault, hint)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, context, &clientcmd.ConfigOverrides{}, rules).ClientConfig()
	if err != nil {
		return nil, configError(name, err.Error(), hintCorrect)
	}
	return cfg, nil
}

// checkFile finds the common faults of a file, which client-go's loader reports in several lines or
// ignores.
func checkFile(path string) error {
	data, err := os.ReadFile(path)
	var cause *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return configError(path, "no such file", hintGive)
	case errors.Is(err, fs.ErrPermission):
		return configError(path, "permission denied", "make it readable for the user this runs as")
	case errors.As(err, &cause):
		return configError(path, cause.Err.Error(), hintGive)
	case len(bytes.TrimSpace(data)) == 0:
		return configError(path, "the file is empty", hintGive)
	}
	return nil
}

// checkContext returns the fault of a context and what to do; empty if there is none.
func checkContext(raw *clientcmdapi.Config, name string) (fault, hint string) {
	of := "the context " + name
	if name == raw.CurrentContext {
		of = "the current-context " + name
	}
	ctx := raw.Contexts[name]
	switch {
	case name == "":
		return "no current-context", chooseContext(raw)
	case ctx == nil:
		return of + " is not in the file", chooseContext(raw)
	case raw.Clusters[ctx.Cluster] == nil:
		return "the cluster " + quoteEmpty(ctx.Cluster) + " of context " + name + " is not in the file", hintCorrect
	case ctx.AuthInfo != "" && raw.AuthInfos[ctx.AuthInfo] == nil:
		// Otherwise client-go would send no credential, and the server would answer 401.
		return "the user " + ctx.AuthInfo + " of context " + name + " is not in the file", hintCorrect
	}
	return "", ""
}

func chooseContext(raw *clientcmdapi.Config) string {
	hint := "choose one with kubectl config use-context"
	if len(raw.Contexts) > 0 {
		hint += " (there are: " + strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ") + ")"
	}
	return hint
}

// configError returns an error of one line about the configuration of the connection. path is the
// file, or the list of files as in $KUBECONFIG; empty if no file is at fault.
func configError(path, fault, hint string) error {
	if path != "" {
		fault = "kubeconfig " + path + ": " + fault
	}
	return &store.Error{Err: errors.New(oneLine(fault)), Hint: hint}
}

func quoteEmpty(s string) string {
	if s == "" {
		return `""`
	}
	return s
}
