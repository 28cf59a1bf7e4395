package e2e

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("page.screenshots", "", "a directory for pictures of the status page")

// browser is a tab of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	asked    []string // URLs requested
	messages []string // of the browser itself: blocked by a policy, or failed to load
}

// screen is the emulated screen of a browser.
type screen struct {
	name          string
	width, height int64
	dark          bool
}

// newBrowser starts a Chromium that can reach 127.0.0.1 only.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no Chromium to look at the page with: install one (Debian's package chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, // CI runs as root
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.Flag("no-proxy-server", true),
		chromedp.WSURLReadTimeout(patience),
	)
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		closeTab()
		stop()
	})
	b := &browser{t: t, ctx: ctx}
	// The first call starts the browser, which lives as long as that call's context.
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.asked = append(b.asked, e.Request.URL)
		case *log.EventEntryAdded:
			b.messages = append(b.messages, e.Entry.Text)
		}
	}))
	command(b, network.Enable, network.EnableParams{})
	command(b, log.Enable, cdp.Empty{})
	return b
}

// command sends one command to the browser.
func command[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Call(ctx, c, params)
	require.NoError(b.t, err)
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err)
	return value
}

// open loads a page on a screen.
func (b *browser) open(url string, s screen) {
	b.t.Helper()
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	kind := chromedp.EmulateLandscape
	if s.width < 600 {
		kind = chromedp.EmulateMobile
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, chromedp.EmulateViewport(s.width, s.height, kind), chromedp.Navigate(url)))
}

// submit fills in a field and sends its form, as Enter does, and waits for the page that answers:
// a question about a page that is being left is an error.
func (b *browser) submit(selector, value string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.SetValue(selector, value), chromedp.Submit(selector))
	require.NoError(b.t, err)
}

// text returns the text of the first element that matches the selector, empty if none does.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(evaluate[string](b, `(document.querySelector(`+quoted(selector)+`)||{textContent:""}).textContent`))
}

// attribute returns an attribute of the first element that matches the selector, empty if none
// does.
func (b *browser) attribute(selector, name string) string {
	b.t.Helper()
	return evaluate[string](b, `((e) => e && e.getAttribute(`+quoted(name)+`) || "")(document.querySelector(`+quoted(selector)+`))`)
}

// awaitText waits until ok accepts the text of an element.
func (b *browser) awaitText(selector, what string, ok func(string) bool) {
	b.t.Helper()
	found := ""
	poll(b.t, selector+" is "+what, &found, func(context.Context) (bool, error) {
		found = b.text(selector)
		return ok(found), nil
	})
}

// activity returns the requested URLs and the browser's messages since the last call.
func (b *browser) activity() (asked, messages []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, messages = b.asked, b.messages
	b.asked, b.messages = nil, nil
	return asked, messages
}

// picture saves a screenshot of the whole page if the flag is set.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o600))
}

func quoted(s string) string { return "`" + s + "`" }
