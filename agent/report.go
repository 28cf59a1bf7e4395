package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/snapcache/snapcache/agent/internal/status"
	"github.com/snapcache/snapcache/systemd"
)

const (
	reportEvery      = 5 * time.Second        // STATUS= for systemd
	progressLogEvery = 10 * time.Second       // progress of a long list in the log
	progressEvery    = 200 * time.Millisecond // progress of a list on a terminal
)

// report sends the status to systemd, and the progress of lists to the log and the terminal, until
// ctx ends.
func (a *Agent) report(ctx context.Context) {
	notify := a.clock.NewTicker(reportEvery)
	defer notify.Stop()
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
		case <-notify.C():
			a.reportStatus(ctx)
		case <-logged.C():
			for _, c := range a.all() {
				if line := status.Progress(a.clock, c); line != "" {
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
		return // reads of the cache return the error too
	}
	headline := s.Headline()
	if stuck := a.watchdog.stuck(); stuck != "" {
		headline = stuck + "; " + headline
	}
	a.tell(systemd.Status(headline))
}

// checking returns the progress callback of the check of a database after a power cut. It reports to
// systemd, which extends its timeout, to the terminal and to the log.
func (a *Agent) checking() func(collection string, records int64) {
	start := a.clock.Now()
	told, logged := time.Time{}, start
	return func(collection string, records int64) {
		now := a.clock.Now()
		line := fmt.Sprintf("checking the database after a power cut: %s: %s records", collection, humanize.Comma(records))
		if now.Sub(told) >= progressEvery {
			told = now
			a.tell(systemd.Starting(line))
			a.draw(line)
		}
		if now.Sub(logged) >= progressLogEvery {
			logged = now
			a.log.Info(line)
		}
	}
}

// drawProgress shows on the terminal the progress of the first list that is under way.
func (a *Agent) drawProgress() {
	for _, c := range a.all() {
		if line := status.Progress(a.clock, c); line != "" {
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
