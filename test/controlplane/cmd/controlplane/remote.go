package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// remoteCommands are the commands that do nothing but ask the supervisor.
func remoteCommands() []*cli.Command {
	var commands []*cli.Command
	for _, v := range []struct{ name, usage string }{
		{"compact", "make etcd forget everything before its current revision"},
		{"stop-apiserver", "stop the apiserver with SIGTERM"},
		{"kill-apiserver", "end the apiserver with SIGKILL"},
		{"start-apiserver", "start the apiserver, on the address it had"},
		{"restart-apiserver", "stop and start the apiserver: it forgets its window of events"},
		{"stop-etcd", "stop etcd with SIGTERM"},
		{"kill-etcd", "end etcd with SIGKILL"},
		{"start-etcd", "start etcd on the data it had"},
		{"restart-etcd", "stop and start etcd"},
		{"stop", "stop the control plane; its folder stays"},
	} {
		commands = append(commands, &cli.Command{
			Name: v.name, Usage: v.usage, Flags: []cli.Flag{dirFlag()}, Before: noArguments,
			Action: func(c *cli.Context) error { return call(c, v.name, nil) },
		})
	}
	return append(commands,
		pathCommand("save", "to", "copy etcd's data to a folder, without stopping anything"),
		pathCommand("restore", "from", "put etcd's data back to what save wrote, and restart both servers"),
	)
}

// pathCommand is a command with one path, which may be relative to where the
// command runs.
func pathCommand(name, flag, usage string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, Before: noArguments,
		Flags: []cli.Flag{dirFlag(), &cli.StringFlag{Name: flag, Usage: "`FOLDER` of the copy", Required: true}},
		Action: func(c *cli.Context) error {
			path, err := filepath.Abs(c.String(flag))
			if err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			return call(c, name, url.Values{flag: {path}})
		},
	}
}

// call asks the supervisor of the control plane in --dir to do something, and
// waits until it is done.
func call(c *cli.Context, verb string, values url.Values) error {
	dir := c.String("dir")
	if _, err := readState(dir); err != nil {
		return err
	}
	socket := filepath.Join(dir, socketFile)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	began := time.Now()
	u := url.URL{Scheme: "http", Host: "controlplane", Path: "/" + verb, RawQuery: values.Encode()}
	req, err := http.NewRequestWithContext(c.Context, http.MethodPost, u.String(), nil)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	resp, err := client.Do(req)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: the control plane in %s has not finished its start, or was killed: %w", verb, dir, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", verb, errors.New(string(bytes.TrimSpace(answer))))
	}
	fmt.Fprintf(c.App.Writer, "%s: done in %s\n", verb, time.Since(began).Round(10*time.Millisecond))
	return nil
}
