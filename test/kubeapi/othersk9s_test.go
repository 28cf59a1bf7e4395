package kubeapi

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	k9sTitle = regexp.MustCompile(`\((\S+)\)\[(\d+)\]`) // the namespace, and the number of rows
	k9sAge   = regexp.MustCompile(`^(\d+[smhdy])+$`)
	k9sViews = []string{"pods", "services", "endpointslices"}
)

// screens returns the rows that k9s shows in some of its views.
func (o *othersRun) screens(t *testing.T, kubeconfig, namespace string) (rows []string) {
	t.Helper()
	for _, view := range k9sViews {
		rows = append(rows, o.screen(t, kubeconfig, namespace, view)...)
	}
	return rows
}

// screen runs k9s on a terminal of tmux, and returns the rows of a view, without what depends on the time.
func (o *othersRun) screen(t *testing.T, kubeconfig, namespace, view string) (rows []string) {
	t.Helper()
	dir := t.TempDir()
	tmux := func(args ...string) *exec.Cmd {
		cmd := o.command(context.WithoutCancel(t.Context()), kubeconfig, "tmux", append([]string{"-f", "/dev/null", "-S", filepath.Join(dir, "tmux")}, args...)...)
		cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8", "K9S_CONFIG_DIR="+dir)
		return cmd
	}
	started, err := tmux("new-session", "-d", "-s", "k9s", "-x", "240", "-y", "60", "k9s", "-n", namespace, "-c", view, "--readonly").CombinedOutput()
	require.NoError(t, err, "%s", started)
	defer func() { _ = tmux("kill-server").Run() }() // it may have ended
	var shown string
	require.Eventually(t, func() bool {
		out, err := tmux("capture-pane", "-p", "-t", "k9s").Output()
		shown = string(out)
		title := k9sTitle.FindStringSubmatch(shown)
		if err != nil || title == nil || title[1] != namespace || title[2] == "0" {
			return false
		}
		rows = k9sRows(shown)
		return strconv.Itoa(len(rows)) == title[2]
	}, patience, 200*time.Millisecond, "%s", view)
	return rows
}

// k9sRows returns the rows of the table on a screen.
func k9sRows(screen string) (rows []string) {
	within := false
	for s := bufio.NewScanner(strings.NewReader(screen)); s.Scan(); {
		row, ok := strings.CutPrefix(s.Text(), "│ ")
		switch {
		case !ok:
			within = false
		case strings.HasPrefix(row, "NAME"):
			within = true
		case within && strings.Trim(row, "│ ") != "":
			fields := slices.DeleteFunc(strings.Fields(strings.Trim(row, "│ ")), k9sAge.MatchString)
			rows = append(rows, strings.Join(fields, " "))
		}
	}
	return rows
}
