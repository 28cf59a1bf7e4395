package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"unicode/utf8"
)

// maxFileSize limits a configuration file, in bytes, so that a wrong path (a database, a log) is
// refused before it is parsed.
const maxFileSize = 1 << 20

// Load reads and checks the configuration file at path, and fills in the defaults. Every error is
// an [Error], or several joined, and contains path. errors.Is reports fs.ErrNotExist and
// fs.ErrPermission.
func Load(path string) (*AgentConfiguration, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

func readFile(path string) ([]byte, error) {
	fail := func(err error) error {
		e := &Error{File: path, err: err}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e.Message = fmt.Sprintf("no such file: create it with the two lines %q and %q, which is a complete configuration, or leave out --config for the same",
				"apiVersion: "+APIVersion, "kind: "+Kind)
		case errors.Is(err, fs.ErrPermission):
			e.Message = "permission denied: make the file readable for the user that runs the agent"
		case errors.Is(err, syscall.EISDIR):
			e.Message = "is a directory: give the path of a configuration file"
		default:
			// The text of an fs.PathError would repeat the file's name.
			if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
				err = pathErr.Err
			}
			e.Message = oneLine(fmt.Sprintf("read failed: %v", err))
		}
		return e
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(err)
	}
	defer func() { _ = f.Close() }() // opened for reading: closing loses nothing
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fail(err)
	}
	return data, nil
}

// Parse checks the configuration in data and fills in the defaults. Errors refer to the file as
// name. Every error is an [Error], or several joined.
func Parse(name string, data []byte) (*AgentConfiguration, error) {
	doc, err := openDocument(name, data)
	if err != nil {
		return nil, err
	}
	c := doc.decode()
	c.SetDefaults()
	for _, p := range c.problems() {
		doc.report(p)
	}
	if err := doc.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkText refuses a file that is not text or is too large.
func checkText(name string, data []byte) *Error {
	if len(data) > maxFileSize {
		return &Error{File: name, Message: "larger than 1 MiB: not a configuration file"}
	}
	for valid := 0; valid < len(data); {
		r, size := utf8.DecodeRune(data[valid:])
		if r == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(data[:valid], []byte("\n"))
			return &Error{File: name, Line: line, Message: fmt.Sprintf("not UTF-8 text (byte 0x%02x)", data[valid])}
		}
		valid += size
	}
	return nil
}
