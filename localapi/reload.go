package localapi

import (
	"context"
	"errors"
	"net/http"
)

// ReloadPattern is the mux pattern of a [ReloadHandler].
const ReloadPattern = "POST " + apiPath + "/reload"

// ErrRefused means that a new configuration was refused, and the previous one stays in force.
var ErrRefused = errors.New("the configuration was refused")

// Reload reads the configuration again and, once it is in force, returns the changes in words.
type Reload func(ctx context.Context) (changes []string, err error)

type reloadAnswer struct {
	Changes []string `json:"changes"`
}

// ReloadHandler reloads for each request. It answers once the new configuration is in force. If the
// configuration is refused, the answer has the reason Refused and status 422.
func ReloadHandler(reload Reload) http.Handler {
	return streamed(func(r *http.Request, s *stream) error {
		changes, err := reload(r.Context())
		if err != nil {
			return err
		}
		return s.value(reloadAnswer{changes})
	})
}

// Reload makes the agent read its configuration again, and returns the changes. If the previous
// configuration stays in force, the error is [ErrRefused].
func (c *Client) Reload(ctx context.Context) (changes []string, err error) {
	err = lines(ctx, c, http.MethodPost, nil, func(a reloadAnswer) error {
		changes = a.Changes
		return nil
	}, "reload")
	return changes, err
}
