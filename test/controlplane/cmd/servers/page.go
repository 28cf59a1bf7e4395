package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// results are the newest results, by the names of the servers.
type results map[string]*result

// readResults returns the results behind a page.
func readResults(page string) (results, error) {
	all := make(results)
	b, err := os.ReadFile(dataFile(page))
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(b, &all)
}

// dataFile is the file beside a page that has its data.
func dataFile(page string) string { return strings.TrimSuffix(page, ".md") + ".json" }

// write writes the page and its data.
func (all results) write(page string) error {
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(dataFile(page), append(b, '\n'), 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	return os.WriteFile(page, []byte(all.page()), 0o644) //nolint:gosec // a document
}

// servers returns the results by version, first the servers on etcd.
func (all results) servers() []*result {
	return slices.SortedFunc(maps.Values(all), func(a, b *result) int {
		if a.Server.Kine != b.Server.Kine {
			return cmp.Compare(len(a.Server.String()), len(b.Server.String()))
		}
		return cmp.Compare(a.Server.Version, b.Server.Version)
	})
}

const intro = `# Compatibility

This page is written by ` + "`make test-servers`" + `. Don't edit it. [The data](compatibility.json) is beside it.

Each row of the first table is a real kube-apiserver, built from its module, on a real etcd, or on kine with SQLite as
in k3s. The same tests run against each, with kubectl 1.36 and the client-go of go.mod. They end with a comparison of
each object in the cache with the datastore's content, which is read past the kube-apiserver, and check the reason of
each list.

On a server of yours: ` + "`snapcache config check --cluster`" + ` reads what holds there and changes nothing. On a throw-away
cluster, ` + "`make test-own-server KUBECONFIG=FILE PROGRAM=FILE`" + ` runs these tests there and prints these
tables. PROGRAM kills and restores your server: test/controlplane/testdata/server.sh is an example, and has k3s. Four of
the single faults are left out there: they need the server's keys, or a second server on its datastore.

`

func (all results) page() string { return intro + all.tables() }

func (all results) tables() string {
	var p strings.Builder
	p.WriteString("| server | datastore | tests passed | failed | changes | kills | lists | when | snapcache |\n|---|---|---|---|---|---|---|---|---|\n")
	servers := all.servers()
	for _, r := range servers {
		datastore := "etcd"
		if r.Server.Kine {
			datastore = "kine, SQLite"
		}
		fmt.Fprintf(&p, "| %s | %s | %d | %d | %d | %d | %d | %s | %s |\n", r.Server.Version, datastore, len(r.Passed), len(r.failed()),
			r.Counted["changes"], r.Counted["kills"], r.Counted["lists"], r.When.Format("2006-01-02"), r.Revision)
	}
	p.WriteString("\nChanges, kills (of agent and server) and lists are those of the long run, the fourth row below.\n\n## Scenarios\n\n")
	p.WriteString("| |")
	for _, r := range servers {
		fmt.Fprintf(&p, " %s |", r.Server)
	}
	p.WriteString("\n|---|" + strings.Repeat("---|", len(servers)) + "\n")
	var notes []string
	for _, s := range scenarios {
		fmt.Fprintf(&p, "| %s |", s.title)
		for _, r := range servers {
			p.WriteString(" " + r.cell(s, &notes) + " |")
		}
		p.WriteString("\n")
	}
	p.WriteString("\n✓: all its tests pass. A number is a test that this server can't have, see below; the others pass.\n\n")
	for i, note := range notes {
		fmt.Fprintf(&p, "%d. %s\n", i+1, note)
	}
	p.WriteString("\n## Tests\n\n| scenario | tests, in test/ |\n|---|---|\n")
	for _, s := range scenarios {
		fmt.Fprintf(&p, "| %s | %s |\n", s.title, strings.Join(s.tests, ", "))
	}
	return p.String()
}

// summary names the servers on which no test failed: "Kubernetes 1.30 and 1.31, and k3s's datastore with 1.31".
func (all results) summary() string {
	var etcd, kine []string
	for _, r := range all.servers() {
		switch minor := strings.TrimSuffix(r.Server.String(), "-kine"); {
		case len(r.failed()) > 0:
		case r.Server.Kine:
			kine = append(kine, minor)
		default:
			etcd = append(etcd, minor)
		}
	}
	return "Kubernetes " + list(etcd) + ", and k3s's datastore with " + list(kine)
}

// list joins names as a sentence does.
func list(names []string) string {
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}

// failed returns the tests that failed and have no exception. One may be newer than the run.
func (r *result) failed() []string {
	return slices.DeleteFunc(slices.Clone(r.Failed), func(t string) bool { return excepted(t, r.Server) != "" })
}

// cell returns the cell of a scenario. A note that it needs is added to notes.
func (r *result) cell(s scenario, notes *[]string) string {
	var marks []string
	passed := false
	for _, t := range s.tests {
		switch note := excepted(t, r.Server); {
		case note != "":
			if !slices.Contains(*notes, note) {
				*notes = append(*notes, note)
			}
			marks = append(marks, fmt.Sprint(1+slices.Index(*notes, note)))
		case slices.Contains(r.Failed, t):
			return "**failed**"
		case slices.Contains(r.Passed, t):
			passed = true
		default:
			return "not run"
		}
	}
	if passed {
		marks = append([]string{"✓"}, marks...)
	}
	return strings.Join(marks, " ")
}
