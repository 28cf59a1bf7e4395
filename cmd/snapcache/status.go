package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/clocks"
	"github.com/snapcache/snapcache/localapi"
)

const statusDescription = `Shows how fresh the running agent's cache is: first in one line, then for each
collection.

   snapcache status              now
   snapcache status --watch      again after each change, until Ctrl-C
   snapcache status -o json      for programs

Exits with 1 if no agent answers (snapcache inspect reads the file without one)
and with 3 if a collection was never synced.`

const watchEvery = time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "show how fresh the running agent's cache is",
		UsageText:   "snapcache status [--watch] [-o table|json]",
		Description: statusDescription,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "print it again after each change, until interrupted"},
			newOutputFlag("status"),
			configFileFlag(), socketPathFlag(),
		},
		Action: atMost(0, status),
	}
}

func status(c *cli.Context) error {
	look, err := newLookup(c)
	if err != nil {
		return err
	}
	print := func(w io.Writer, s *localapi.Status) error {
		return output(c, w, s, func() error { return printStatus(w, s) })
	}
	if c.Bool("watch") {
		ctx, stop := interruptible(c.Context)
		defer stop()
		w := statusPrinter{
			ask: func(ctx context.Context) (*localapi.Status, error) { return askAgent(ctx, look) }, print: print,
			// Unbuffered: each frame has to be visible at once.
			out: os.Stdout, redraw: term.IsTerminal(int(os.Stdout.Fd())) && c.String(outputFlag) != "json",
			clock: clock.RealClock{},
		}
		return w.run(ctx)
	}
	s, err := askAgent(c.Context, look)
	if err != nil {
		return err
	}
	if err := print(c.App.Writer, s); err != nil {
		return err
	}
	_, missing := synced(s.Collections)
	return notSynced(missing)
}

func askAgent(ctx context.Context, look *lookup) (*localapi.Status, error) {
	_, s, err := look.openSocket(ctx, look.socket)
	if errors.Is(err, localapi.ErrNoAgent) {
		err = fmt.Errorf("%w: snapcache inspect reads the database without one", err)
	}
	return s, err
}

// statusPrinter prints the status whenever it changes.
type statusPrinter struct {
	ask    func(context.Context) (*localapi.Status, error)
	print  func(io.Writer, *localapi.Status) error
	out    io.Writer
	redraw bool // on a terminal: redraw in place every time
	clock  clock.WithTicker

	last string // fingerprint of the status that was shown last
}

// run prints the status until ctx ends, which is not an error. An agent that does not answer may be
// restarting, so run continues.
func (w *statusPrinter) run(ctx context.Context) error {
	ticker := w.clock.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		if err := w.show(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (w *statusPrinter) show(ctx context.Context) error {
	s, err := w.ask(ctx)
	if ctx.Err() != nil {
		return nil
	}
	var text bytes.Buffer
	if err != nil {
		fmt.Fprintln(&text, err)
	} else if err := w.print(&text, s); err != nil {
		return err
	}
	if w.redraw {
		// Go to the top left, clear the rest of each line after writing it, and clear below.
		screen := bytes.ReplaceAll(text.Bytes(), []byte("\n"), []byte("\x1b[K\n"))
		_, err := fmt.Fprintf(w.out, "\x1b[H%s\x1b[J", screen)
		return err
	}
	now := fingerprint(s, err)
	if now == w.last {
		return nil
	}
	between := ""
	if w.last != "" {
		between = "\n"
	}
	w.last = now
	return writeStrings(w.out, between+text.String())
}

// fingerprint returns a status without the fields that change by themselves.
func fingerprint(s *localapi.Status, err error) string {
	if err != nil {
		return err.Error()
	}
	same := *s
	same.Collections = slices.Clone(s.Collections)
	for i := range same.Collections {
		same.Collections[i].AgeSeconds = 0
		same.Collections[i].Proven = time.Time{}
		same.Collections[i].EventsByMinute = nil // the end of a minute changes nothing visible
	}
	if same.Agent != nil {
		agent := *same.Agent
		agent.Programs = nil
		same.Agent = &agent
	}
	b, err := json.Marshal(same)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func printStatus(w io.Writer, s *localapi.Status) error {
	if err := writeStrings(w, s.Headline(), "\n\n"); err != nil {
		return err
	}
	t := newTable(w, "COLLECTION", "STATE", "AGE", ">OBJECTS", ">SIZE", ">EVENTS", ">RESUMES", ">LISTS", "LAST LIST")
	for _, c := range s.Collections {
		objects, size := sizes(c)
		_, state := c.State()
		if progress := c.Progress(); progress != "" {
			state += ": " + progress
		}
		t.row(c.ID, state, c.Age(), objects, size, humanCount(c.Events), humanCount(c.Resumes), humanCount(c.Lists), listed(c))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if err := printPrograms(w, s.Agent); err != nil {
		return err
	}
	snapshots := ""
	if s.Snapshots != nil {
		snapshots = "snapshots: " + s.Snapshots.Summary(time.Now())
	}
	return writeLines(w, append(alarmLines(s), verifiedLine(s.Collections, time.Now()), storeLine(s.Store), snapshots, agentLine(s.Agent))...)
}

// printPrograms prints what the clients of the Kubernetes API have asked.
func printPrograms(w io.Writer, a *localapi.AgentStatus) error {
	if a == nil || len(a.Programs) == 0 {
		return nil
	}
	if err := writeStrings(w, "\n"); err != nil {
		return err
	}
	t := newTable(w, "CLIENT", ">ANSWERED HERE", ">WATCHES HERE", ">OPEN", ">FORWARDED")
	for _, p := range a.Programs {
		t.row(p.Name, humanCount(p.Requests), humanCount(p.Watches), humanCount(p.Open), humanCount(p.Forwarded))
	}
	return t.flush()
}

// verifiedLine reports comparisons that found no difference. The others are alarms.
func verifiedLine(collections []localapi.Collection, now time.Time) string {
	same, oldest, known := int64(0), time.Duration(0), true
	for _, c := range collections {
		if v := c.Verification; v != nil && v.Problem == "" && v.Left() == 0 {
			age := clocks.AgeOf(clocks.Stamp{At: v.Time}, clocks.Stamp{At: now})
			same, oldest, known = same+1, max(oldest, age.Duration()), known && age.Known()
		}
	}
	if same == 0 {
		return ""
	}
	when := "within " + localapi.Age(oldest.Seconds())
	if !known {
		when = "at an unknown time, as the clock is behind it"
	}
	return fmt.Sprintf("%s verified %s: the same as the server's", plural(same, "collection", "collections"), when)
}

func alarmLines(s *localapi.Status) []string {
	var lines []string
	for _, a := range s.Alarms() {
		lines = append(lines, a.String())
	}
	return lines
}

func agentLine(a *localapi.AgentStatus) string {
	if a == nil {
		return ""
	}
	parts := []string{"agent: snapcache " + a.Version, fmt.Sprintf("pid %d", a.PID)}
	if !a.Started.IsZero() {
		parts = append(parts, "up since "+a.Started.Local().Format(time.DateTime))
	}
	if server := a.ServerText(); server != "" {
		parts = append(parts, "server "+server)
	}
	return strings.Join(parts, ", ")
}
