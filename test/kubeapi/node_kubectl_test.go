package kubeapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/snapcache/snapcache/internal/logging/logtest"
)

// command returns a command of kubectl, as the administrator.
func (n *node) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, n.KubectlPath(), append([]string{"-n", shop}, args...)...)
	cmd.Env = []string{"HOME=" + n.dir, "KUBECONFIG=" + n.files["admin"]}
	return cmd
}

// kubectl returns a check of what a command prints.
func (n *node) kubectl(want string, args ...string) func(context.Context) string {
	return func(ctx context.Context) string {
		return prints(n.command(ctx, args...), want+"\n")
	}
}

// attaches sends a container its input, which it returns, and returns what went wrong.
func (n *node) attaches(ctx context.Context) string {
	const words = "some words\n"
	cmd := n.command(ctx, "attach", "--stdin", "--quiet", "keep-0")
	cmd.Stdin = strings.NewReader(words)
	return prints(cmd, words)
}

// prints runs a program and returns what went wrong: it failed, or its standard output was not exactly want.
func prints(cmd *exec.Cmd, want string) string {
	var errors bytes.Buffer
	cmd.Stderr = &errors
	if out, err := cmd.Output(); err != nil || string(out) != want {
		return fmt.Sprintf("%q: %q (%v: %s)", cmd.Args, out, err, &errors)
	}
	return ""
}

// forwardsPort connects to a port of a pod, which returns what it is sent, and returns what went wrong.
func (n *node) forwardsPort(ctx context.Context) string {
	ctx, cancel := context.WithCancel(ctx)
	cmd := n.command(ctx, "port-forward", "--address", "127.0.0.1", "keep-0", ":80")
	var errors logtest.Buffer
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait() // an error is expected: it was killed
	}()
	var address string
	if _, err := fmt.Fscanf(out, "Forwarding from %s -> 80\n", &address); err != nil {
		return fmt.Sprintf("kubectl port-forward: %v: %s", err, errors.String())
	}
	words := strings.Repeat("some words ", 10_000) // in more than one frame
	got, err := echoed(ctx, address, words)
	if err != nil || got != words {
		return fmt.Sprintf("kubectl port-forward: %d bytes, not %d (%v): %s", len(got), len(words), err, errors.String())
	}
	return ""
}

// echoed sends words to an address, and returns the answer.
func echoed(ctx context.Context, address, words string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if _, err := io.WriteString(c, words); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}
