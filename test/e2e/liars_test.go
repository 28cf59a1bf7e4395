package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	bytesof "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// liarMB limits the peak memory of a command that reads a crafted file.
const liarMB = 500

// TestFilesThatLie gives the program files whose writer wants its memory or its disk: a few megabytes
// that stand for gigabytes. Each is refused with an error that names the file, in little memory, with
// almost nothing written.
func TestFilesThatLie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		file  func(t *testing.T, w io.Writer)
		args  []string // before the file
		code  int
		text  string
		limit int64 // of bytes on disk
	}{
		{"a bundle of blanks", func(t *testing.T, w io.Writer) { bundleOf(t, w, 9, 120<<20, blanks) }, []string{"serve", "--from"}, codeFailure, "its objects have more than 1024 MiB", 1 << 20},
		{"a bundle of small objects", func(t *testing.T, w io.Writer) { bundleOf(t, w, 2, 120<<20, smallPods) }, []string{"serve", "--from"}, codeFailure, "it has more than 500000 objects", 256 << 20},
		{"a bundle of numbers in YAML", func(t *testing.T, w io.Writer) {
			bundleAs(t, w, "yaml", 9, 1<<20, func() io.Reader { return io.MultiReader(strings.NewReader("- ["), repeat("1,")) })
		}, []string{"serve", "--from"}, codeFailure, "no support bundle", 1 << 20},
		{"a snapshot of zeros", func(t *testing.T, w io.Writer) { snapshotOf(t, w, 512<<20) }, []string{"dump", "--from"}, codeCorrupt, "its manifest claims a database of 536870912 bytes", 1 << 20},
		{"a seed of zeros", func(t *testing.T, w io.Writer) { snapshotOf(t, w, 512<<20) }, []string{"snapshot", "restore"}, codeCorrupt, "its manifest claims a database of 536870912 bytes", 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(t.TempDir(), "given")
			f, err := os.Create(file)
			require.NoError(t, err)
			c.file(t, f)
			require.NoError(t, f.Close())
			t.Logf("the file has %d KiB", size(t, file)>>10)
			args := append(c.args, file)
			if c.args[0] == "snapshot" {
				args = append(args, "--dir", dir, "--db", filepath.Join(dir, "cache.db"))
			}
			cmd := exec.CommandContext(t.Context(), binary, args...)
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			most, stop := mostBytes(dir)
			err = cmd.Wait()
			close(stop)
			exit := (*exec.ExitError)(nil)
			require.ErrorAs(t, err, &exit)
			require.Equal(t, c.code, exit.ExitCode(), stderr.String())
			require.Contains(t, stderr.String(), c.text)
			require.Contains(t, stderr.String(), file)
			peak := float64(exit.SysUsage().(*syscall.Rusage).Maxrss) / 1024
			written := <-most
			t.Logf("peak %.0f MB, %d KiB on disk at most: %s", peak, written>>10, bytes.TrimSpace(stderr.Bytes()))
			require.Less(t, peak, float64(liarMB), "MB at the peak")
			require.LessOrEqual(t, written, c.limit, "bytes on disk")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestInterruptWhileLoading ends the loading of a large bundle with the first SIGINT.
func TestInterruptWhileLoading(t *testing.T) {
	t.Parallel()
	file, dir := filepath.Join(t.TempDir(), "bundle.tar.gz"), t.TempDir()
	f, err := os.Create(file)
	require.NoError(t, err)
	bundleOf(t, f, 8, 120<<20, largePods)
	require.NoError(t, f.Close())
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--from", file)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return diskBytes(dir) > 0 }, patience, pollEvery, "it loads")
	began := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	t.Logf("ended after %s, with a peak of %d MB", time.Since(began), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss/1024)
	require.Less(t, time.Since(began), 2*time.Second)
	require.NotContains(t, stderr.String(), "serving")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// mostBytes watches the files in dir until stop is closed, and then sends how many bytes they had at most.
func mostBytes(dir string) (most chan int64, stop chan struct{}) {
	most, stop = make(chan int64, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for n := int64(0); ; n = max(n, diskBytes(dir)) {
			select {
			case <-stop:
				most <- n
				return
			case <-tick.C:
			}
		}
	}()
	return most, stop
}

func diskBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // files come and go
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
		}
		return nil
	})
	return n
}

// bundleOf writes a support bundle of files of JSON, each of size bytes of content.
func bundleOf(t *testing.T, w io.Writer, files int, size int64, content func() io.Reader) {
	bundleAs(t, w, "json", files, size, content)
}

func bundleAs(t *testing.T, w io.Writer, extension string, files int, size int64, content func() io.Reader) {
	t.Helper()
	packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	require.NoError(t, err)
	archive := tar.NewWriter(packed)
	for i := range files {
		name := fmt.Sprintf("b/cluster-resources/pods/%d.%s", i, extension)
		require.NoError(t, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size}))
		_, err := io.CopyN(archive, content(), size)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(archive.Close(), packed.Close()))
}

// endless is a reader of what next returns, one after the other.
type endless struct {
	next func() string
	rest string
}

func (e *endless) Read(p []byte) (n int, _ error) {
	for n < len(p) {
		if e.rest == "" {
			e.rest = e.next()
		}
		k := copy(p[n:], e.rest)
		n, e.rest = n+k, e.rest[k:]
	}
	return n, nil
}

func repeat(text string) io.Reader {
	text = strings.Repeat(text, 1000)
	return &endless{next: func() string { return text }}
}

func pods(more string) io.Reader {
	i := 0
	return io.MultiReader(strings.NewReader("["), &endless{next: func() string {
		i++
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p` + strconv.Itoa(i) + `"` + more + "}},"
	}})
}

func blanks() io.Reader    { return repeat(" ") }
func smallPods() io.Reader { return pods("") }
func largePods() io.Reader {
	return pods(`,"annotations":{"x":"` + strings.Repeat("0123456789", 1000) + `"}`)
}

// snapshotOf writes a snapshot with right checksums of a database of zeros.
func snapshotOf(t *testing.T, w io.Writer, size int64) {
	t.Helper()
	sum := sha256.New()
	var packed bytes.Buffer
	enc, err := zstd.NewWriter(&packed, zstd.WithWindowSize(1<<20))
	require.NoError(t, err)
	_, err = io.CopyN(io.MultiWriter(enc, sum), repeat("\x00"), size)
	require.NoError(t, errors.Join(err, enc.Close()))
	manifest := fmt.Sprintf(`{"created":"2026-03-04T05:06:07Z","database":{"format":1,"bytes":%d,"sha256":"%x"},"collections":[]}`, size, sum.Sum(nil))
	b := bytesof.BigEndian.AppendUint32([]byte("\x89snapc\r\n"), 1)
	b = bytesof.BigEndian.AppendUint32(b, uint32(len(manifest)))
	b = append(b, manifest...)
	b = bytesof.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	b = append(b, packed.Bytes()...)
	digest := sha256.Sum256(b)
	_, err = w.Write(append(b, digest[:]...))
	require.NoError(t, err)
}
