package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxPages bounds the pages that are read of one list.
const maxPages = 40

// request is one request, or the pages of one list.
type request struct {
	method string
	path   string
	query  string // encoded
	accept string
	agent  string // User-Agent

	// pages is set if the list's continue tokens are followed.
	pages bool
}

func (q request) String() string {
	s := q.method + " " + q.path
	if q.query != "" {
		s += "?" + q.query
	}
	if q.accept != "" {
		s += fmt.Sprintf(" Accept: %q", q.accept)
	}
	if q.agent != "" {
		s += fmt.Sprintf(" User-Agent: %q", q.agent)
	}
	if q.pages {
		s += " (all pages)"
	}
	return s
}

// has reports whether the query has a value for the parameter, and one of wanted if there are any.
func (q request) has(parameter string, wanted ...string) bool {
	values, _ := url.ParseQuery(q.query)
	if len(wanted) == 0 {
		return values.Has(parameter)
	}
	for _, w := range wanted {
		if values.Has(parameter) && values.Get(parameter) == w {
			return true
		}
	}
	return false
}

// asksForInitialEvents reports whether a watch ends its initial events with a bookmark.
func (q request) asksForInitialEvents() bool {
	return q.has("sendInitialEvents") && !q.has("sendInitialEvents", "false", "0")
}

// target is a server of the Kubernetes API.
type target struct {
	name   string
	base   *url.URL
	token  string
	client *http.Client
}

// response is an answer as it was received.
type response struct {
	status int
	header http.Header
	body   []byte
}

// ask sends the request and returns the responses: one, or one for each page.
func (t *target) ask(ctx context.Context, q request) ([]response, error) {
	var pages []response
	for {
		r, err := t.askOnce(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", t.name, q, err)
		}
		pages = append(pages, r)
		if !q.pages || len(pages) == maxPages {
			return pages, nil
		}
		var list struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(r.body, &list); err != nil || list.Metadata.Continue == "" {
			return pages, nil
		}
		values, err := url.ParseQuery(q.query)
		if err != nil {
			return nil, err
		}
		values.Set("continue", list.Metadata.Continue)
		values.Del("resourceVersion")
		values.Del("resourceVersionMatch")
		q.query = values.Encode()
	}
}

func (t *target) askOnce(ctx context.Context, q request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, q.method, t.base.String()+q.path, nil)
	if err != nil {
		return response{}, err
	}
	req.URL.RawQuery = q.query
	req.Header.Set("User-Agent", "compare")
	if q.agent != "" {
		req.Header.Set("User-Agent", q.agent)
	}
	if q.accept != "" {
		req.Header.Set("Accept", q.accept)
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if q.method != http.MethodGet && q.method != http.MethodHead {
		req.Header.Set("Content-Type", "application/json")
		req.Body = io.NopCloser(strings.NewReader("{}"))
	}
	res, err := t.client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return response{}, fmt.Errorf("read the answer, of which there are %d bytes: %w", len(body), err)
	}
	return response{res.StatusCode, res.Header, body}, nil
}
