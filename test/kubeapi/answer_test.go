package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is a response in the form in which two are compared.
type answer struct {
	Status int
	Header map[string][]string
	Form   string // of JSON: compact, pretty or lines
	Body   []any  // the JSON documents; for anything else one text
}

// comparedHeaders are the headers that mean something to a client. Others identify a server, such as
// Audit-Id, or follow from the bytes of the body.
var comparedHeaders = []string{
	"Allow", "Cache-Control", "Content-Encoding", "Content-Type", "Location", "Retry-After", "Vary", "Warning", "X-Content-Type-Options",
}

// answerOf returns the answer in a response. JSON that is malformed, or has a field twice, is an
// error.
func answerOf(r response) (answer, error) {
	a := answer{Status: r.status, Header: map[string][]string{}}
	for _, name := range comparedHeaders {
		if values := r.header.Values(name); len(values) > 0 {
			a.Header[name] = slices.Clone(values)
		}
	}
	if !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") || len(r.body) == 0 {
		a.Body = []any{string(r.body)}
		return a, nil
	}
	a.Form = formOf(r.body)
	check := jsontext.NewDecoder(bytes.NewReader(r.body))
	for {
		if _, err := check.ReadValue(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return a, fmt.Errorf("the JSON is malformed: %w", err)
		}
	}
	documents := json.NewDecoder(bytes.NewReader(r.body))
	documents.UseNumber()
	for documents.More() {
		var document any
		if err := documents.Decode(&document); err != nil {
			return a, fmt.Errorf("decode: %w", err)
		}
		if !timedBookmark(document) {
			a.Body = append(a.Body, document)
		}
	}
	return a, nil
}

// formOf returns how JSON is laid out: compact or pretty, and whether it ends with a newline.
func formOf(body []byte) string {
	form := "compact"
	if bytes.Contains(body, []byte("\n  ")) {
		form = "pretty"
	}
	if bytes.HasSuffix(body, []byte("\n")) {
		form += ", ends with a newline"
	}
	return form
}

// timedBookmark reports whether a document is a frame with a bookmark that is sent when some time has
// passed, not at the end of the initial events.
func timedBookmark(document any) bool {
	if at(document, "type") != "BOOKMARK" {
		return false
	}
	raw, err := json.Marshal(document)
	return err == nil && !bytes.Contains(raw, []byte(metav1.InitialEventsAnnotationKey))
}

// at returns the value at a path of a JSON document, or nil.
func at(value any, path ...string) any {
	for _, name := range path {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	return value
}

// isFrame reports whether the document is a frame of a watch.
func isFrame(document any) bool {
	return at(document, "type") != nil && at(document, "object") != nil && at(document, "kind") == nil
}

// ageSlack is how far the ages in two Tables may be apart.
const ageSlack = 5 * time.Second

// alike returns two values with those cells of Tables equal that are nearly the same age.
func alike(a, b any, inCells bool) (any, any) {
	switch x := a.(type) {
	case map[string]any:
		y, _ := b.(map[string]any)
		for name := range x {
			if other, ok := y[name]; ok {
				x[name], y[name] = alike(x[name], other, name == "cells")
			}
		}
	case []any:
		y, _ := b.([]any)
		for i := range min(len(x), len(y)) {
			x[i], y[i] = alike(x[i], y[i], inCells)
		}
	case string:
		y, _ := b.(string)
		one, ok := ageOf(x)
		other, too := ageOf(y)
		if inCells && ok && too && (one-other).Abs() <= ageSlack {
			return "an age", "an age"
		}
	}
	return a, b
}

var agePattern = regexp.MustCompile(`^(?:(\d+)m)?(?:(\d+)s)?$`)

// ageOf parses an age of less than an hour as kubectl prints it, such as 2m3s.
func ageOf(s string) (time.Duration, bool) {
	if s == "" || !agePattern.MatchString(s) {
		return 0, false
	}
	age, err := time.ParseDuration(s)
	return age, err == nil
}

// describe returns a response as text, for a report.
func describe(pages []response) string {
	var b strings.Builder
	for _, r := range pages {
		fmt.Fprintf(&b, "%d %s", r.status, http.StatusText(r.status))
		for _, name := range comparedHeaders {
			if v := r.header.Values(name); len(v) > 0 {
				fmt.Fprintf(&b, " %s: %q", name, v)
			}
		}
		fmt.Fprintf(&b, "\n%.600s\n", r.body)
	}
	return b.String()
}
