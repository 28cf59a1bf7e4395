package upstream

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// maxObject limits one object, in a list and in a watch, in bytes. apimachinery's streaming decoder
// has the same limit for one event. etcd's own limit is 1.5 MiB, so only an aggregated API can come
// near it.
const maxObject = 16 << 20

// page is the content of a list's body other than its items.
type page struct {
	apiVersion string
	kind       string
	rv         string
	next       string // the continue token
	remaining  int64  // objects after this page; -1 if unknown
	message    string // of a Status
}

// parsePage reads one list from r and calls more with the continue token, empty for none, once it is
// known, and item with each item's JSON, which is valid only during the call. deep gets the items that
// are nested so deep that they were not checked. It holds one item at a time, and accepts metadata
// before the items (built-in resources) or after them (custom resources). Errors other than item's and
// deep's wrap [ErrBadList].
func parsePage(r io.Reader, more func(next string), item, deep func([]byte) error) (page, error) {
	lim := &itemLimit{r: r}
	// Duplicate names and invalid UTF-8 in an object are not checked: both checks cost time, and
	// every other client accepts such objects.
	dec := jsontext.NewDecoder(lim, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	p := page{remaining: -1}
	err := p.parse(dec, lim, more, item, deep)
	return p, badList(err)
}

// badList returns the error of a parser for the caller: item's, or one that wraps [ErrBadList].
func badList(err error) error {
	if err == nil {
		return nil
	}
	if stop, ok := errors.AsType[*itemError](err); ok {
		return stop.err
	}
	return fmt.Errorf("%w: %w", ErrBadList, cutOff(err)) // an empty body ends at once
}

// itemError carries an error of item out of the parser, to distinguish it from an error in the
// body.
type itemError struct{ err error }

func (e *itemError) Error() string { return e.err.Error() }

func (p *page) parse(dec *jsontext.Decoder, lim *itemLimit, more func(string), item, deep func([]byte) error) error {
	tok, err := dec.ReadToken()
	if errors.As(err, new(*jsontext.SyntacticError)) && !short(err) {
		return fmt.Errorf("%w: %w", errNotJSON, err)
	}
	if err != nil {
		return err
	}
	if tok.Kind() != '{' {
		return fmt.Errorf("%w: it is a JSON %s", errNotJSON, tok.Kind())
	}
	hasItems := false
	for {
		lim.reset()
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if tok.Kind() == '}' {
			break
		}
		switch tok.String() {
		case "apiVersion":
			err = readString(dec, &p.apiVersion)
		case "kind":
			err = readString(dec, &p.kind)
		case "message":
			err = readString(dec, &p.message)
		case "metadata":
			if err = p.readMetadata(dec); err == nil {
				more(p.next)
			}
		case "items":
			if hasItems {
				return errors.New("items come twice")
			}
			hasItems = true
			err = readItems(dec, lim, item, deep)
		default:
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	// Read to the end: only that verifies the checksum of a compressed body, and that the
	// connection did not break.
	if _, err := dec.ReadToken(); err == nil {
		return errors.New("there is something after the list")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case p.kind == "Status" && p.apiVersion == "v1":
		return fmt.Errorf("the body is a Status: %s", oneLine(p.message))
	case !hasItems:
		return fmt.Errorf("the body is of kind %q and has no items", p.kind)
	}
	return nil
}

// readString reads a value that should be a string. A value of another type reads as "".
func readString(dec *jsontext.Decoder, to *string) error {
	v, err := dec.ReadValue()
	*to = gjson.ParseBytes(v).Str
	return err
}

func (p *page) readMetadata(dec *jsontext.Decoder) error {
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	fields := gjson.GetManyBytes(v, "resourceVersion", "continue", "remainingItemCount")
	p.rv, p.next = fields[0].String(), fields[1].String()
	n, err := strconv.ParseInt(fields[2].Raw, 10, 64)
	p.setRemaining(n, err == nil)
	return nil
}

// setRemaining notes the number of objects after this page, if the server has named one.
func (p *page) setRemaining(n int64, named bool) {
	if named && n >= 0 {
		p.remaining = n
	} else if p.next == "" {
		p.remaining = 0
	}
}

func readItems(dec *jsontext.Decoder, lim *itemLimit, item, deep func([]byte) error) error {
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch tok.Kind() {
	case 'n': // the server encoded a nil slice
		return nil
	case '[':
	default:
		return fmt.Errorf("items are a JSON %s", tok.Kind())
	}
	rest := io.Reader(lim)
	for {
		lim.reset()
		if dec.PeekKind() == ']' {
			_, err := dec.ReadToken()
			return err
		}
		use := item
		v, err := dec.ReadValue()
		if isDeep(err) {
			use = deep
			v, rest, err = deepItem(dec, rest)
		}
		if err != nil {
			return err
		}
		if err := use(v); err != nil {
			return &itemError{err}
		}
	}
}

func short(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// itemLimit fails once more than [maxObject] bytes were read since reset. It bounds the buffer of
// the JSON decoder.
type itemLimit struct {
	r io.Reader
	n int
}

func (l *itemLimit) reset() { l.n = 0 }

func (l *itemLimit) Read(p []byte) (int, error) {
	if l.n > maxObject {
		return 0, ErrTooLarge
	}
	n, err := l.r.Read(p)
	l.n += n
	return n, err
}
