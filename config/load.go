package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
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
	if err == nil {
		return Parse(path, data)
	}
	e := &Error{File: path, err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Message = fmt.Sprintf("no such file: create it with the two lines %q and %q, which is a complete configuration, "+
			"or leave out --config for the same", "apiVersion: "+APIVersion, "kind: "+Kind)
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
	return nil, e
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: closing loses nothing
	return io.ReadAll(io.LimitReader(f, maxFileSize+1))
}

// checkText refuses a file that is not text or is too large.
func checkText(name string, data []byte) error {
	if len(data) > maxFileSize {
		return &Error{File: name, Message: "larger than 1 MiB: not a configuration file"}
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) {
			line := 1 + bytes.Count(data[:at], []byte("\n"))
			return &Error{File: name, Line: line, Message: fmt.Sprintf("not plain UTF-8 text (byte 0x%02x)", data[at])}
		}
		at += size
	}
	return nil
}
