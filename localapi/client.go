package localapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/snapcache/snapcache/object"
)

const (
	// maxErrorBytes limits the body of an error answer.
	maxErrorBytes = 1 << 20

	// maxStatusBytes limits a status.
	maxStatusBytes = 16 << 20
)

// maxLineBytes limits one line of an answer: the stores' limit for an object, and room for the rest.
const maxLineBytes = object.MaxBytes + 1<<20

// Client is the Source of a running agent. It keeps no connection between calls, so it needs no
// Close.
type Client struct {
	socket string
	http   *http.Client
}

var _ Source = (*Client)(nil)

// NewClient returns the client of the agent that listens on a unix socket. If no agent answers,
// errors of its calls wrap [ErrNoAgent].
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext:       dial,
		DisableKeepAlives: true,
		// Over a local socket, compression would cost more than it saves.
		DisableCompression: true,
	}}}
}

// Status implements [Source].
func (c *Client) Status(ctx context.Context) (*Status, error) {
	body, err := c.ask(ctx, http.MethodGet, nil, "status")
	if err != nil {
		return nil, err
	}
	defer closeBody(body)
	status := &Status{}
	if err := json.NewDecoder(io.LimitReader(body, maxStatusBytes)).Decode(status); err != nil {
		return nil, c.wrap(ctx, err)
	}
	return status, nil
}

// Index implements [Source].
func (c *Client) Index(ctx context.Context, collections []string, index string) ([][]IndexValue, error) {
	all := make([][]IndexValue, 0, len(collections))
	err := inEach(collections, func(id string) error {
		values := []IndexValue{}
		err := lines(ctx, c, http.MethodGet, nil, func(v IndexValue) error {
			values = append(values, v)
			return nil
		}, "collections", id, "index", index)
		all = append(all, values)
		return err
	})
	if err != nil && !errors.As(err, new(*CorruptRecordsError)) {
		return nil, err
	}
	return all, err
}

// inEach runs a query in each of the collections. After corruption it continues with the next
// collection, and returns the corruption at the end.
func inEach(collections []string, query func(id string) error) error {
	var corrupt damage
	for _, id := range collections {
		if err := query(id); err != nil && !corrupt.add(err) {
			return err
		}
	}
	return corrupt.err()
}

// Keys implements [Source].
func (c *Client) Keys(ctx context.Context, collections []string, q KeyQuery, each func(string, Key) error) error {
	return inEach(collections, func(id string) error {
		return lines(ctx, c, http.MethodGet, q.parameters(), func(k Key) error { return each(id, k) }, "collections", id, "keys")
	})
}

// Objects implements [Source].
func (c *Client) Objects(ctx context.Context, collections []string, q ObjectQuery, each func([]byte) error) error {
	return inEach(collections, func(id string) error {
		return c.stream(ctx, http.MethodGet, q.parameters(), func(line []byte) error {
			if len(line) == 0 || line[0] != '{' || line[len(line)-1] != '}' { // not from an agent
				return c.wrap(ctx, object.ErrInvalid)
			}
			return each(line)
		}, "collections", id, "objects")
	})
}

// Changes implements [Source].
func (c *Client) Changes(ctx context.Context, collection string, q ChangeQuery, each func(Change) error) error {
	return c.stream(ctx, http.MethodGet, q.parameters(), func(line []byte) error {
		change, err := decodeChange(line)
		if err != nil {
			return c.wrap(ctx, err)
		}
		return each(change)
	}, "collections", collection, "changes")
}

// lines calls each for the lines of a stream, decoded.
func lines[T any](ctx context.Context, c *Client, method string, p parameters, each func(T) error, path ...string) error {
	return c.stream(ctx, method, p, func(line []byte) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return c.wrap(ctx, err)
		}
		return each(v)
	}, path...)
}

// stream calls each for the lines of a stream, which are valid until it returns. Errors of each are
// returned unchanged.
func (c *Client) stream(ctx context.Context, method string, p parameters, each func([]byte) error, path ...string) error {
	body, err := c.ask(ctx, method, p, path...)
	if err != nil {
		return err
	}
	defer closeBody(body)
	r := bufio.NewScanner(body)
	r.Buffer(make([]byte, streamBufferBytes), maxLineBytes)
	r.Split(splitLine)
	for r.Scan() {
		err := errorIn(r.Bytes())
		if err == nil {
			err = each(r.Bytes())
		}
		if err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return c.wrap(ctx, err)
	}
	return nil
}

// splitLine is a [bufio.SplitFunc] for lines, of which the last one has an end too.
func splitLine(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

// ask sends a request and returns the body of a successful answer.
func (c *Client) ask(ctx context.Context, method string, p parameters, path ...string) (io.ReadCloser, error) {
	target := "http://snapcache" + apiPath
	for _, segment := range path {
		target += "/" + url.PathEscape(segment)
	}
	if len(p) > 0 {
		target += "?" + p.encode().Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadQuery, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer closeBody(resp.Body)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		return nil, c.wrap(ctx, err)
	}
	if err := errorIn(body); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("agent on %s: HTTP %s for %s: %w", c.socket, resp.Status, req.URL.Path, ErrOtherServer)
}

// noAnswer returns a short error for a failed connection: net/http's text repeats a URL that means
// nothing to the user.
func (c *Client) noAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return err
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	return fmt.Errorf("%w on %s: %w", ErrNoAgent, c.socket, err)
}

// wrap adds the agent to an error in the middle of an answer.
func (c *Client) wrap(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("agent on %s: the answer was truncated: %w", c.socket, err)
	default:
		return fmt.Errorf("agent on %s: %w", c.socket, err)
	}
}

// closeBody discards the rest of an answer, so its error does not matter.
func closeBody(body io.Closer) { _ = body.Close() }
