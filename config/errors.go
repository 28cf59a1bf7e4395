package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one fault of a configuration. Its text is one line:
//
//	"agent.yaml:12: resources[2].labelSelector: unable to parse requirement: ...".
type Error struct {
	// File is the name passed to Load or Parse; empty for a configuration made in Go.
	File string
	// Line counts from 1. It is 0 if there is no line, as for a default or an unreadable file.
	Line int
	// Field is the path of the field, such as resources[2].labelSelector; empty for the whole file.
	Field string
	// Message has the fault and the correct form.
	Message string

	err error // the cause that Unwrap returns, or nil
}

// Error implements error.
func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	switch {
	case e.File == "":
		return text
	case e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
	}
	return e.File + ": " + text
}

// Unwrap returns the cause, if any, so that errors.Is(err, fs.ErrNotExist) works.
func (e *Error) Unwrap() error { return e.err }

// problems are faults found by validation, before their file and line are known.
type problems []*Error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, &Error{Field: field, Message: printable(fmt.Sprintf(format, args...))})
}

// maxErrors limits the errors reported: a file with more is not a configuration.
const maxErrors = 100

// join joins errs in the order of the file, or returns nil if there are none.
func join(errs []*Error) error {
	slices.SortStableFunc(errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	if more := len(errs) - maxErrors; more > 0 {
		rest := &Error{File: errs[0].File, Message: fmt.Sprintf("and %d more errors", more)}
		errs = append(errs[:maxErrors:maxErrors], rest)
	}
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}

// maxMessage limits a message, in bytes: some libraries put the whole bad value into theirs.
const maxMessage = 600

// printable replaces control characters by spaces and truncates s to maxMessage: each error is one line, for
// any content of the file.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// quote quotes a value from the file for a message, and truncates it.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// cut is quote without the quotes.
func cut(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}
