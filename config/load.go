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

// maxFileSize bounds a configuration file in bytes, so that a wrong path (a database, a log) is told
// from a configuration before it is parsed.
const maxFileSize = 1 << 20

// Load reads and checks the configuration file at path, with its defaults filled in. Every error is an
// [Error] or several of them joined, each naming the file as path does. errors.Is(err, fs.ErrNotExist)
// and fs.ErrPermission tell those cases.
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
			e.Message = "this is a directory: give the configuration file in it"
		default:
			// An fs.PathError would name the file a second time.
			if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
				err = pathErr.Err
			}
			e.Message = oneLine(fmt.Sprintf("reading it failed: %v", err))
		}
		return e
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(err)
	}
	defer func() { _ = f.Close() }() // read only: nothing can be lost in closing
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fail(err)
	}
	return data, nil
}

// Parse checks the configuration in data and fills in its defaults. The name stands for the file in
// errors, each of which is an [Error] or several of them joined.
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

// checkText refuses what is no text file of a sensible size.
func checkText(name string, data []byte) *Error {
	if len(data) > maxFileSize {
		return &Error{File: name, Message: "larger than 1 MiB: this is no configuration file"}
	}
	if utf8.Valid(data) {
		return nil
	}
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return &Error{File: name, Line: line, Message: fmt.Sprintf("not UTF-8 text (byte 0x%02x)", data[0])}
}

// isBlank tells whether a file holds nothing at all.
func isBlank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }
