package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/snapcache/snapcache/snapshot"
)

// clearLine moves the cursor to the first column of a terminal and clears the line.
const clearLine = "\r\x1b[K"

// progressInterval is the shortest time between two updates of a progress line.
const progressInterval = 100 * time.Millisecond

// progressLine shows progress in the last line of a terminal. Without a terminal it does nothing.
type progressLine struct {
	terminal bool
	shown    time.Time
}

// newProgress is for work that SIGINT and SIGTERM abort, so that it removes partial files.
func newProgress(ctx context.Context) (_ context.Context, p *progressLine, done func()) {
	p = &progressLine{terminal: term.IsTerminal(int(os.Stderr.Fd()))}
	ctx, stop := interruptible(ctx)
	return ctx, p, func() {
		stop()
		p.clear()
	}
}

func (p *progressLine) printf(format string, args ...any) {
	if p.terminal && time.Since(p.shown) >= progressInterval {
		p.shown = time.Now()
		fmt.Fprintf(os.Stderr, clearLine+format, args...)
	}
}

func (p *progressLine) step(step snapshot.Step, n, total int64) {
	p.printf("%s: %s of %s", step, humanBytes(n), humanBytes(total))
}

func (p *progressLine) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, clearLine)
	}
}

// lineClearer writes to a terminal whose last line may show progress. It clears that line first.
type lineClearer struct{ io.Writer }

func (l lineClearer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(l.Writer, clearLine); err != nil {
		return 0, err
	}
	return l.Writer.Write(p)
}

// interruptible returns a context that the first SIGINT or SIGTERM ends. The next ends the process.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
