package documents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/kubeapi/internal/discovery"
)

// readAgain is how old the documents are before a client's request has them read again.
const readAgain = 10 * time.Minute

// Mirror is the server's discovery documents in a file. It is safe for concurrent use.
type Mirror struct {
	path  string
	clock clock.PassiveClock
	kept  atomic.Pointer[kept] // nil for none
	asked chan struct{}
}

// kept is the content of the file, with the documents that are made of it.
type kept struct {
	Read   time.Time       `json:"read"`
	Core   json.RawMessage `json:"core"`   // the aggregated document at /api
	Groups json.RawMessage `json:"groups"` // that at /apis

	docs *discovery.Documents
}

// Open reads the file, which may be missing. If it is of no use, the mirror is empty, with an error.
func Open(path string, c clock.PassiveClock) (*Mirror, error) {
	m := &Mirror{path: path, clock: c, asked: make(chan struct{}, 1)}
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	k := &kept{}
	if err == nil {
		err = json.Unmarshal(body, k)
	}
	if err == nil {
		k.docs, err = discovery.Parse(k.Core, k.Groups)
	}
	if err != nil {
		return m, fmt.Errorf("kept discovery documents: %s: %w", path, err)
	}
	m.kept.Store(k)
	return m, nil
}

// Refresh replaces the documents by the server's. get returns the body of the aggregated document at a path.
func (m *Mirror) Refresh(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) error {
	k := &kept{Read: m.clock.Now()}
	var err error
	if k.Core, err = get(ctx, "/api"); err != nil {
		return fmt.Errorf("read the discovery documents: %w", err)
	}
	if k.Groups, err = get(ctx, "/apis"); err != nil {
		return fmt.Errorf("read the discovery documents: %w", err)
	}
	if k.docs, err = discovery.Parse(k.Core, k.Groups); err != nil {
		return fmt.Errorf("read the discovery documents: %w", err)
	}
	m.kept.Store(k)
	body, err := json.Marshal(k)
	if err == nil {
		err = files.WriteAtomic(m.path, body)
	}
	if err != nil {
		return fmt.Errorf("keep the discovery documents: %w", err)
	}
	return nil
}

// Note notes that a client has asked the server for a document. If the kept ones are not new, Asked has a value.
func (m *Mirror) Note() {
	if k := m.kept.Load(); k != nil && m.clock.Since(k.Read) < readAgain {
		return
	}
	select {
	case m.asked <- struct{}{}:
	default:
	}
}

// Asked returns a channel that has a value when the documents should be read again.
func (m *Mirror) Asked() <-chan struct{} { return m.asked }

// Serve answers a GET of a document, with its age in seconds, indented if pretty is set. If there is none at the path,
// Serve returns false and writes nothing.
func (m *Mirror) Serve(w http.ResponseWriter, r *http.Request, pretty bool) bool {
	k := m.kept.Load()
	if k == nil || !k.docs.Has(r.URL.Path) {
		return false
	}
	w.Header().Set("Age", strconv.FormatInt(max(0, int64(m.clock.Since(k.Read).Seconds())), 10))
	return k.docs.Serve(w, r, pretty)
}
