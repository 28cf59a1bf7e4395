package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/snapcache/snapcache/agent/internal/collection"
	"github.com/snapcache/snapcache/internal/logging"
	"github.com/snapcache/snapcache/localapi"
)

const (
	reportEvery      = 5 * time.Second        // STATUS= for systemd
	progressLogEvery = 10 * time.Second       // progress of a long list in the log
	progressEvery    = 200 * time.Millisecond // and on a terminal
)

// report tells systemd and whoever watches how the agent is, until ctx ends.
func (a *Agent) report(ctx context.Context) {
	status := a.clock.NewTicker(reportEvery)
	defer status.Stop()
	logged := a.clock.NewTicker(progressLogEvery)
	defer logged.Stop()
	drawn := a.clock.NewTicker(progressEvery)
	defer drawn.Stop()
	a.reportStatus(ctx)
	for {
		select {
		case <-ctx.Done():
			a.draw("")
			return
		case <-status.C():
			a.reportStatus(ctx)
		case <-logged.C():
			for _, c := range a.all() {
				if line := a.progress(c); line != "" {
					c.Log.Info("listing " + line)
				}
			}
		case <-drawn.C():
			a.drawProgress()
		}
	}
}

func (a *Agent) reportStatus(ctx context.Context) {
	s, err := a.source.Status(ctx)
	if err != nil {
		return // the database says so itself, in the log and to whoever reads
	}
	if a.config().Encryption.On() { // systemd has it in its journal
		for _, problem := range []*string{&s.Agent.Problem, &s.Store.Problem} {
			if *problem != "" {
				*problem = logging.Withheld
			}
		}
	}
	headline := Headline(s)
	if stuck := a.stalled.Load(); stuck != nil {
		headline = "STUCK: " + *stuck + "; " + headline
	}
	a.tell(a.notifier.Status(headline))
}

// Headline is a status in one line, freshness first.
func Headline(s *localapi.Status) string {
	var objects int64
	inStep, unsynced := 0, 0
	var age float64
	for _, c := range s.Collections {
		if !c.Synced {
			unsynced++
			continue
		}
		objects += c.Objects
		if c.InStep {
			inStep++
		} else {
			age = max(age, c.AgeSeconds)
		}
	}
	synced := len(s.Collections) - unsynced
	text := fmt.Sprintf("%s objects in %s", humanize.Comma(objects), english.Plural(synced, "collection", ""))
	switch {
	case unsynced == len(s.Collections):
		text = "never synced"
	case inStep == synced:
		text = "in step: " + text
	default:
		text = fmt.Sprintf("data is %s old: %s, %d of %d in step", localapi.Age(age), text, inStep, len(s.Collections))
	}
	if unsynced > 0 && unsynced < len(s.Collections) {
		text += fmt.Sprintf("; %d never synced", unsynced)
	}
	if s.Agent != nil && s.Agent.Problem != "" {
		text += "; waiting: " + s.Agent.Problem
	}
	if s.Store.Problem != "" {
		text += "; changes can't be stored: " + s.Store.Problem
	}
	if s.Agent != nil && s.Agent.ConfigProblem != "" {
		text += "; the newest configuration was refused: " + s.Agent.ConfigProblem
	}
	return text
}

// progress describes a list that is under way, "" where there is none.
func (a *Agent) progress(c *collection.Collection) string {
	stats := c.Tracker.Stats()
	if stats.Listing == "" {
		return ""
	}
	took := a.clock.Since(stats.ListSince).Seconds()
	rate := float64(stats.Read) / max(took, 0.001)
	text := fmt.Sprintf("%s (%s): %s objects, %s a second", c.ID, stats.Listing, humanize.Comma(stats.Read), humanize.Comma(int64(rate)))
	if stats.Remaining > 0 && rate > 0 {
		text += fmt.Sprintf(", %s to go, about %s", humanize.Comma(stats.Remaining), localapi.Age(float64(stats.Remaining)/rate))
	}
	return text
}

// checking returns what is called while a database is checked after a power cut: it
// tells systemd, which waits, the terminal and the log.
func (a *Agent) checking() func(collection string, records int64) {
	start := a.clock.Now()
	told, logged := time.Time{}, start
	return func(collection string, records int64) {
		now := a.clock.Now()
		line := fmt.Sprintf("checking the database after a power cut: %s: %s records", collection, humanize.Comma(records))
		if now.Sub(told) >= progressEvery {
			told = now
			a.tell(a.notifier.Starting(line))
			a.draw(line)
		}
		if now.Sub(logged) >= progressLogEvery {
			logged = now
			a.log.Info(line)
		}
	}
}

// drawProgress shows the first list that is under way on the terminal.
func (a *Agent) drawProgress() {
	for _, c := range a.all() {
		if line := a.progress(c); line != "" {
			a.draw("listing " + line)
			return
		}
	}
	a.draw("")
}

// draw replaces the terminal's last line.
func (a *Agent) draw(line string) {
	if a.opts.Progress == nil || line == a.drawn {
		return
	}
	a.drawn = line
	// Nothing depends on a terminal that can't be written to.
	_, _ = fmt.Fprintf(a.opts.Progress, "\r\x1b[K%s", line)
}
