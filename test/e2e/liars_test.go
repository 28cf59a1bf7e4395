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

	"github.com/snapcache/snapcache/test/controlplane/harness"
)

// liarMB limits the peak memory of a command that reads a crafted file: that of the agent's service.
const liarMB = 256

// TestFilesThatLie gives the program files whose writer wants its memory or its disk: a few megabytes
// that stand for gigabytes. Each is refused with an error that names the file, in little memory, with
// almost nothing written.
func TestFilesThatLie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		file  func(t *testing.T, w io.Writer)
		args  []string // before the file
		code  int      // 0: what it has is served
		text  string
		limit int64 // of bytes on disk
	}{
		{"a bundle of blanks", bundleOf("json", 9, 120<<20, blanks), serveFrom, codeFailure, "its objects have more than 1024 MiB", 1 << 20},
		{"a bundle of blanks in lists", bundleOf("json", 2, 120<<20, func() io.Reader { return after("[", repeat(" ")) }), serveFrom, codeFailure, "an object of more than 8 MiB", 1 << 20},
		{"a bundle of small objects", bundleOf("json", 2, 120<<20, smallPods), serveFrom, codeFailure, "it has more than 500000 objects", 256 << 20},
		{"a bundle of kinds in turn", bundleOf("json", 1, 16<<20, func() io.Reader { return kinds(1) }), serveFrom, 0, "more than 20000 objects that are not beside others of their kind", 256 << 20},
		{"a bundle of many kinds", bundleOf("json", 1, 16<<20, func() io.Reader { return kinds(400) }), serveFrom, 0, "can't be read to its end", 256 << 20},
		{"a bundle of long names", bundleOf("json", 8, 120<<20, longNames), serveFrom, codeFailure, "the names of its objects have more than 32 MiB", 256 << 20},
		{"a bundle of large objects", bundleOf("json", 8, 120<<20, func() io.Reader { return podsWith(repeatedText(7 << 20)) }), serveFrom, 0, "can't be read to its end", 64 << 20},
		{"a bundle of one object", bundleOf("json", 1, 120<<20, func() io.Reader {
			return after(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`, repeat("x"))
		}), serveFrom, codeFailure, "an object of more than 8 MiB", 1 << 20},
		{"a bundle of labels", bundleOf("json", 2, 32<<20, labels), serveFrom, 0, "can't be read to its end", 64 << 20},
		{"a bundle of resources without names", func(t *testing.T, w io.Writer) {
			bundleAs(t, w, "resources.json", 1, 4<<20, func() io.Reader { return after(`[{"groupVersion":"v1","resources":[null`, repeat(",null")) })
		}, serveFrom, codeFailure, "it has more than 150000 values", 1 << 20},
		{"a bundle of a definition with many versions", bundleOf("json", 1, 3<<20, versions), serveFrom, 0, "it has more than 150000 values: columns", 8 << 20},
		{"a bundle of numbers in YAML", bundleOf("yaml", 9, 1<<20, func() io.Reader { return after("- [", repeat("1,")) }), serveFrom, codeFailure, "no support bundle", 1 << 20},
		{"a bundle of maps in YAML", bundleOf("yaml", 2, 1<<20, func() io.Reader {
			return after("- [a: ", io.LimitReader(repeat(",a: "), 1<<20-80), strings.NewReader("]"), repeat("\n"))
		}), serveFrom, codeFailure, "more than 150000 values of YAML", 1 << 20},
		{"a bundle of comments in YAML", bundleOf("yaml", 4, 120<<20, func() io.Reader { return repeat("# comment\n   \n") }), serveFrom, codeFailure, "it has no objects", 1 << 20},
		{"a bundle of blanks in YAML", bundleOf("yaml", 4, 120<<20, blanks), serveFrom, codeFailure, "it has no objects", 1 << 20},
		{"a bundle of sequences in YAML", bundleOf("yaml", 4, 1<<20, func() io.Reader { return after("- ", repeat("- ")) }), serveFrom, codeFailure, "exceeded max depth", 1 << 20},
		{"a bundle of documents in YAML", bundleOf("yaml", 4, 120<<20, func() io.Reader { return repeat("---\n{}\n") }), serveFrom, codeFailure, "an object of more than 1 MiB of YAML", 1 << 20},
		{"a bundle of items in YAML", bundleOf("yaml", 1, 1<<20, func() io.Reader { return repeat("- {}\n") }), serveFrom, codeFailure, "it has no objects", 1 << 20},
		{"a bundle of one line in YAML", bundleOf("yaml", 1, 120<<20, func() io.Reader { return after("- a: ", repeat("x")) }), serveFrom, codeFailure, "an object of more than 1 MiB of YAML", 1 << 20},
		{"a bundle of aliases in YAML", bundleOf("yaml", 1, 320<<10, aliases), serveFrom, codeFailure, "an alias, *a", 1 << 20},
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
			cmd := measured(t, args...)
			cmd.Env = append(cmd.Env, "TMPDIR="+dir)
			served, stdout := &interrupter{cmd: cmd}, &strings.Builder{}
			cmd.Stdout, cmd.Stderr = stdout, served
			require.NoError(t, cmd.Start())
			most, stop := mostBytes(dir)
			_ = cmd.Wait() // the exit code has it
			close(stop)
			peak := peakMB(t, stdout.String())
			written, stderr := <-most, served.text.String()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%.0f MB\n%s", peak, stderr)
			require.Contains(t, stderr, c.text)
			require.Contains(t, stderr, file)
			t.Logf("peak %.0f MB, %d KiB on disk at most: %s", peak, written>>10, strings.TrimSpace(stderr))
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
	bundleOf("json", 8, 120<<20, largePods)(t, f)
	require.NoError(t, f.Close())
	cmd := exec.CommandContext(t.Context(), harness.Snapcache, "serve", "--from", file)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return diskBytes(dir) > 0 }, patience, pollEvery, "it loads")
	began := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	t.Logf("ended after %s", time.Since(began))
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

// interrupter keeps the stderr of a command, and ends the command with SIGINT once it serves.
type interrupter struct {
	text bytes.Buffer
	cmd  *exec.Cmd
}

func (i *interrupter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("Ctrl-C ends it")) {
		_ = i.cmd.Process.Signal(os.Interrupt) // it has ended already
	}
	return i.text.Write(p)
}

var serveFrom = []string{"serve", "--from"}

// bundleOf returns a writer of a support bundle of files, each of size bytes of content.
func bundleOf(extension string, files int, size int64, content func() io.Reader) func(t *testing.T, w io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		bundleAs(t, w, "pods/%d."+extension, files, size, content)
	}
}

// bundleAs writes a support bundle of files with names of a format.
func bundleAs(t *testing.T, w io.Writer, name string, files int, size int64, content func() io.Reader) {
	t.Helper()
	packed, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	require.NoError(t, err)
	archive := tar.NewWriter(packed)
	for i := range files {
		name := "b/cluster-resources/" + name
		if strings.Contains(name, "%d") {
			name = fmt.Sprintf(name, i)
		}
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

func after(head string, rest ...io.Reader) io.Reader {
	return io.MultiReader(append([]io.Reader{strings.NewReader(head)}, rest...)...)
}

// listOf returns an array without an end of what item returns.
func listOf(item func(i int) string) io.Reader {
	i := 0
	return after("[", &endless{next: func() string {
		i++
		return item(i) + ","
	}})
}

func pods(more string) io.Reader {
	return listOf(func(i int) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p` + strconv.Itoa(i) + `"` + more + "}}"
	})
}

func podsWith(annotation string) io.Reader {
	return pods(`,"annotations":{"x":"` + annotation + `"}`)
}

func repeatedText(n int) string { return strings.Repeat("0123456789", n/10) }

func blanks() io.Reader    { return repeat(" ") }
func smallPods() io.Reader { return pods("") }
func largePods() io.Reader { return podsWith(repeatedText(10_000)) }

func longNames() io.Reader {
	long := repeatedText(8_000)
	return listOf(func(i int) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + strconv.Itoa(i) + "-" + long + `"}}`
	})
}

// kinds returns objects of 500 kinds in turn, several of each.
func kinds(several int) io.Reader {
	return listOf(func(i int) string {
		kind := "K" + strconv.Itoa(i/several%500)
		return `{"apiVersion":"x/v1","kind":"` + kind + `","metadata":{"name":"p` + strconv.Itoa(i) + `"},"spec":"` + kind + `"}`
	})
}

// labels returns a pod with as many labels as an object may have bytes.
func labels() io.Reader {
	var b strings.Builder
	for i := 0; b.Len() < 7<<20; i++ {
		fmt.Fprintf(&b, `,"%x":""`, i)
	}
	return pods(`,"labels":{"x":""` + b.String() + "}")
}

// versions returns a custom resource, and its definition with many versions.
func versions() io.Reader {
	return after(`[{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}},
		{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{"versions":[{}`,
		io.LimitReader(repeat(",{}"), 1_400_001), strings.NewReader("]}}]"), blanks())
}

// aliases returns YAML in which a text of 16 KiB stands in a hundred thousand places.
func aliases() io.Reader {
	return after(`- {a: &a "`+strings.Repeat("x", 16<<10)+`", b: [*a`, io.LimitReader(repeat(",*a"), 300_000), strings.NewReader("]}"), repeat("\n"))
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
