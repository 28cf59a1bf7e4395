package kubeapi

import (
	"bufio"
	"context"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// follow runs stern until it follows all containers of a namespace, and returns which these are. There is no kubelet
// that has logs of them.
func (o *othersRun) follow(t *testing.T, kubeconfig, namespace string, containers int) []string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	cmd := o.command(ctx, kubeconfig, "stern", ".", "-n", namespace, "--color", "never")
	cmd.WaitDelay = patience
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var output strings.Builder
	followed := make(map[string]bool)
	for text := bufio.NewScanner(said); len(followed) < containers && text.Scan(); {
		output.WriteString(text.Text() + "\n")
		if container, ok := strings.CutPrefix(text.Text(), "+ "); ok {
			followed[container] = true
		}
	}
	stop()
	var killed *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &killed)
	require.Len(t, followed, containers, "%s", output.String())
	return slices.Sorted(maps.Keys(followed))
}
