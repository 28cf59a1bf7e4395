package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapcache/snapcache/test/controlplane"
)

// result is the outcome of the tests on one server.
type result struct {
	Server   controlplane.Server `json:"server"`
	When     time.Time           `json:"when"`
	Revision string              `json:"revision"` // of snapcache; several if tests were mended
	Passed   []string            `json:"passed"`   // folder and name
	Failed   []string            `json:"failed"`
	Counted  map[string]int      `json:"counted"` // "changes", "kills", "lists"
}

// event is a line of "go test -json".
type event struct{ Action, Test, Output string }

// counted finds the counts of a test in a line of its output, "counted: 12 changes, 3 kills".
var counted = regexp.MustCompile(`counted: (.*)`)

// test runs the tests of a server, without those that passed before.
func test(ctx context.Context, root string, server controlplane.Server, short bool, before *result) (*result, error) {
	r := &result{Server: server, When: time.Now().UTC().Truncate(time.Minute), Revision: revision(ctx, root), Counted: map[string]int{}}
	tests := testsOf(server, short)
	if before != nil {
		for folder, names := range tests {
			if tests[folder] = before.left(folder, names); len(tests[folder]) == 0 {
				delete(tests, folder)
			}
		}
		if len(tests) == 0 {
			return before, nil
		}
		r.Passed, r.Counted = slices.Clone(before.Passed), maps.Clone(before.Counted)
		if !strings.Contains(before.Revision, r.Revision) {
			r.Revision = before.Revision + " " + r.Revision
		}
	}
	for folder, names := range tests {
		if err := r.run(ctx, filepath.Join(root, "test"), folder, names, controlplane.ServerEnv+"="+server.String()); err != nil {
			return nil, err
		}
	}
	slices.Sort(r.Passed)
	slices.Sort(r.Failed)
	return r, nil
}

// left returns the tests of a folder that have not passed.
func (r *result) left(folder string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(r.Passed, folder+"/"+n) })
}

// revision returns the commit of the source tree, with a + if code was changed since.
func revision(ctx context.Context, root string) string {
	commit, err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(commit))
	if exec.CommandContext(ctx, "git", "-C", root, "diff", "--quiet", "HEAD", "--", ":!docs").Run() != nil {
		name += "+"
	}
	return name
}

// run runs tests of one folder, with more of an environment, and prints the output of each that fails.
func (r *result) run(ctx context.Context, dir, folder string, names []string, env ...string) error {
	fmt.Printf("%s: %s\n", r.Server, folder)
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=60m", "-parallel=4", "-json", "-run", "^("+strings.Join(names, "|")+")$", ".")
	cmd.Dir, cmd.Stderr = filepath.Join(dir, folder), os.Stderr
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(map[string]string) // how each test did
	output := make(map[string]*strings.Builder)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		top, _, below := strings.Cut(e.Test, "/")
		if output[top] == nil {
			output[top] = new(strings.Builder)
		}
		switch e.Action {
		case "output":
			output[top].WriteString(e.Output)
			r.count(e.Output)
		case "pass", "fail", "skip":
			if !below {
				ended[top] = e.Action
			}
		}
	}
	failed := cmd.Wait() // with the tests' result
	if err := errors.Join(lines.Err(), ctx.Err()); err != nil {
		return err
	}
	for _, name := range names {
		id := folder + "/" + name
		if ended[name] == "pass" {
			r.Passed = append(r.Passed, id)
			continue
		}
		r.Failed = append(r.Failed, id) // a test that is skipped, or was not run, has shown nothing
		fmt.Printf("%s: %s: %s\n", r.Server, id, ended[name])
		if output[name] != nil {
			fmt.Println(output[name])
		}
	}
	if failed != nil && ended[""] != "fail" && output[""] != nil {
		fmt.Println(output[""]) // of the package: it may not build
	}
	return nil
}

// count adds the counts in a line of output.
func (r *result) count(line string) {
	m := counted.FindStringSubmatch(line)
	if m == nil {
		return
	}
	for part := range strings.SplitSeq(strings.TrimSpace(m[1]), ", ") {
		number, noun, _ := strings.Cut(part, " ")
		if n, err := strconv.Atoi(number); err == nil {
			r.Counted[noun] += n
		}
	}
}
