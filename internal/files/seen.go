package files

import (
	"io"
	"os"
)

// Seen are files that other programs replace, such as certificates that are renewed, with their states when
// they were read. It is not safe for concurrent use.
type Seen map[string]os.FileInfo

// Read reads a file and adds it.
func (f Seen) Read(name string) ([]byte, error) {
	f[name] = nil // a file that can't be read counts as changed
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()            // before it is read, so that no change is missed
	if err != nil {
		return nil, err
	}
	f[name] = info
	return io.ReadAll(file)
}

// Unchanged reports whether there are files, and all are as they were. A link to another file, as
// Kubernetes has for a Secret's files in a volume, is a change.
func (f Seen) Unchanged() bool {
	for name, was := range f {
		now, err := os.Stat(name)
		if err != nil || !os.SameFile(was, now) || !was.ModTime().Equal(now.ModTime()) || was.Size() != now.Size() {
			return false
		}
	}
	return len(f) > 0
}
