// Command archive packs a directory, under its own name, as a compressed tar or a zip file:
//
//	archive snapcache-linux-amd64.tar.gz DIRECTORY
//	archive snapcache-chart.tgz DIRECTORY
//
// All files belong to root and have the time $SOURCE_DATE_EPOCH, so that the same content gives the same
// bytes on any machine.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: archive FILE.tar.gz|FILE.tgz|FILE.zip DIRECTORY")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

// entry is a file in the archive.
type entry struct {
	name string // with slashes
	mode fs.FileMode
	data []byte
}

func pack(out, dir string) (err error) {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("$SOURCE_DATE_EPOCH: %w", err)
	}
	entries, err := read(dir)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if strings.HasSuffix(out, ".zip") {
		return writeZip(f, entries, time.Unix(epoch, 0).UTC())
	}
	return writeTar(f, entries, time.Unix(epoch, 0).UTC())
}

// read returns the regular files of a directory in the order of their names. A program is executable for
// all, whatever the umask was.
func read(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		e := entry{name: path.Join(filepath.Base(dir), filepath.ToSlash(rel)), mode: 0o644, data: data}
		if info.Mode()&0o100 != 0 {
			e.mode = 0o755
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

func writeTar(w io.Writer, entries []entry, modified time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(compressed)
	for _, e := range entries {
		if err := t.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)),
			Uname: "root", Gname: "root", ModTime: modified,
		}); err != nil {
			return err
		}
		if _, err := t.Write(e.data); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), compressed.Close())
}

func writeZip(w io.Writer, entries []entry, modified time.Time) error {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(e.mode)
		file, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(e.data); err != nil {
			return err
		}
	}
	return z.Close()
}
