package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Error is one thing that is wrong with a configuration. Its text is one line:
// "agent.yaml:12: resources[2].labelSelector: unable to parse requirement: ...".
type Error struct {
	// File is the name that was given to Load or Parse; empty for a configuration made in Go.
	File string
	// Line counts from 1; 0 where no line can be named, as for a default or an unreadable file.
	Line int
	// Field is the path of the field, as in resources[2].labelSelector; empty where it is the whole file.
	Field string
	// Message says what is wrong and what would be right.
	Message string

	err error // the cause, where there is one that a caller may ask for
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Unwrap returns the cause where there is one, so that errors.Is(err, fs.ErrNotExist) works.
func (e *Error) Unwrap() error { return e.err }

// problem is what validation finds: a field and what is wrong with it, before file and line are known.
type problem struct {
	field   string
	message string
}

// problems collects them.
type problems []problem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, problem{field: field, message: oneLine(fmt.Sprintf(format, args...))})
}

// maxErrors bounds how many errors are reported: a file that has more is another kind of file.
const maxErrors = 100

// join makes one error of many, in the order of the file; nil of none.
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

// maxMessage bounds a message in bytes: some libraries put the whole of a bad value into theirs.
const maxMessage = 600

// oneLine keeps the promise of one line an error whatever the file holds.
func oneLine(s string) string {
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

// quote shows a value from the file in a message, cut where it is long.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
