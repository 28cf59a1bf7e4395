package serving

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// TestFrameLimit checks what a server of HTTP/2 announces that it takes, and that it ends a connection with a
// frame that is longer: by default it would hold 1 MiB of each for clients that it does not know yet.
func TestFrameLimit(t *testing.T) {
	inBubble(t, pods, func(t *testing.T, p pipes) {
		c := newH2(t, p)
		announced := make(map[http2.SettingID]uint32)
		window := uint32(64<<10 - 1) // of a connection, before any update
		ended := make(chan http2.ErrCode, 1)
		go func() {
			defer close(ended)
			for {
				f, err := c.ReadFrame()
				switch f := f.(type) {
				case *http2.SettingsFrame:
					_ = f.ForeachSetting(func(s http2.Setting) error { announced[s.ID] = s.Val; return nil }) // nil only
				case *http2.WindowUpdateFrame:
					window += f.Increment
				case *http2.GoAwayFrame:
					ended <- f.ErrCode
				}
				if err != nil {
					return
				}
			}
		}()
		require.NoError(t, c.WriteSettings())
		require.NoError(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fields(), EndHeaders: true}))
		_ = c.WriteData(1, true, make([]byte, maxFrameBytes+1)) // the server may have cut it already
		require.Equal(t, http2.ErrCodeFrameSize, <-ended)
		_ = c.conn.Close() // the server has
		for range ended {  // until the reader has ended
		}
		require.EqualValues(t, maxFrameBytes, announced[http2.SettingMaxFrameSize])
		require.EqualValues(t, maxUnreadBytes, announced[http2.SettingInitialWindowSize])
		require.LessOrEqual(t, window, uint32(maxUnreadBytes))
	})
}

// TestAcceptLimit checks that a long list of forms is refused before it is parsed.
func TestAcceptLimit(t *testing.T) {
	_, config := serve(t, pods)
	for length, code := range map[int]int{maxAcceptBytes: http.StatusOK, maxAcceptBytes + 1: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/pods", nil)
		require.NoError(t, err)
		r.Header.Set("Accept", strings.Repeat("x", length))
		answer, err := client(t, config).Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, code, answer.StatusCode)
	}
}
