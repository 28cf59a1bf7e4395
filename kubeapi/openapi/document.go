package openapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
)

const (
	suffix    = ".json.gz"
	temporary = ".tmp" // the suffix of a file that is being written
)

// maxDocument limits a document, in bytes. Kubernetes's documents have up to 1 MB, a group with many large
// custom resources some more.
const maxDocument = 64 << 20

// maxHash limits a hash, in bytes. Kubernetes's have 128.
const maxHash = 256

// document describes a document on disk.
type document struct {
	hash string // the server's, of the JSON
	size int64  // of the JSON, in bytes
}

// relativeURL returns the URL of a document, as a server's index has it.
func relativeURL(path, hash string) string {
	u := url.URL{Path: root + "/" + path, RawQuery: url.Values{"hash": {hash}}.Encode()}
	return u.String()
}

func fileName(path string) string { return url.PathEscape(path) + suffix }

// pathOf returns the path of the document in a file. It returns false if the name is not one of
// fileName.
func pathOf(name string) (string, bool) {
	escaped, ok := strings.CutSuffix(name, suffix)
	path, err := url.PathUnescape(escaped)
	return path, ok && err == nil && fileName(path) == name
}

// validHash reports whether a hash can be part of a file, a URL and a header as it is.
func validHash(hash string) bool {
	return hash != "" && len(hash) <= maxHash && !strings.ContainsFunc(hash, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// write writes a document to a file. The error describes the fault if body is not one JSON object.
func write(f io.Writer, path, hash string, body io.Reader) error {
	zw := gzip.NewWriter(f)
	zw.Name, zw.Comment = path, hash
	limited := &io.LimitedReader{R: body, N: maxDocument + 1}
	err := checkObject(io.TeeReader(limited, zw))
	if limited.N <= 0 {
		err = fmt.Errorf("it is over the limit of %d MiB", maxDocument>>20)
	}
	if err != nil {
		return err
	}
	return zw.Close()
}

// checkObject reads r to its end and returns an error if it is not one JSON object.
func checkObject(r io.Reader) error {
	d := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true))
	if d.PeekKind() != jsontext.KindBeginObject {
		if _, err := d.ReadToken(); err != nil && !errors.As(err, new(*jsontext.SyntacticError)) {
			return err
		}
		return errors.New("the server's answer is no JSON object")
	}
	if err := d.SkipValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("the server's answer goes on after the JSON object"), err)
	}
	return nil
}

// open opens the file of the document at path, and reads it once to its end, because only that shows
// whether it is whole.
func open(file, path string) (*os.File, document, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, document{}, err
	}
	d, err := read(f, path)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, document{}, errors.Join(fmt.Errorf("OpenAPI document %s: %w", path, err), f.Close())
	}
	return f, d, nil
}

func read(f *os.File, path string) (document, error) {
	zr, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return document{}, err
	}
	d := document{hash: zr.Comment}
	if zr.Name != path || !validHash(d.hash) {
		return document{}, errors.New("the file is of another document")
	}
	d.size, err = io.Copy(io.Discard, zr)
	return d, err
}
