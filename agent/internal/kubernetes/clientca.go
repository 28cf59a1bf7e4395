package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/snapcache/snapcache/internal/files"
	"github.com/snapcache/snapcache/internal/sleep"
	"github.com/snapcache/snapcache/upstream"
)

// clientCAFile is where the authorities that the server publishes are kept.
func (x *clusterAccess) clientCAFile() string { return filepath.Join(x.dir, "client-ca.crt") }

// loadClientCA reads the configured authorities or, if there are none, the stored ones.
func (x *clusterAccess) loadClientCA() error {
	if name := x.clientCA; name != "" {
		x.authorities = &authorityFile{name: name, set: x.callers.SetClientCA, log: x.log}
		return x.authorities.read()
	}
	pem, err := os.ReadFile(x.clientCAFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = x.callers.SetClientCA(pem)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", x.clientCAFile(), err)
	}
	return nil
}

// readClientCA reads the authorities that the server publishes. If it publishes none, as before it has
// started completely, the stored ones stay.
func (x *clusterAccess) readClientCA(ctx context.Context, cluster *upstream.Cluster) error {
	if x.authorities != nil {
		return nil
	}
	pem, ok, err := cluster.ClientCA(ctx)
	if err != nil || !ok {
		return err
	}
	if err := x.callers.SetClientCA(pem); err != nil {
		return err
	}
	return files.WriteAtomic(x.clientCAFile(), pem)
}

// authorityFile is a file with the authorities of client certificates. It is read again when it has
// changed.
type authorityFile struct {
	name string
	set  func(pem []byte) error
	log  *slog.Logger

	files files.Seen
	fault string // of the file as it is, empty for none
}

// lookEvery is the time between two looks at the file: a certificate of an authority that was removed is
// not accepted any longer than a right that was withdrawn.
const lookEvery = 30 * time.Second

// follow reads the file again when it changes, until ctx ends. While it can't be used, perhaps because it
// is being written, the authorities before count.
func (f *authorityFile) follow(ctx context.Context, c clock.Clock) {
	for sleep.For(ctx, c, lookEvery) == nil {
		if f.files.Unchanged() {
			continue
		}
		fault := ""
		if err := f.read(); err != nil {
			fault = err.Error()
		}
		if fault != "" && fault != f.fault {
			f.log.Warn("the changed clientCAFile can't be used, its predecessor is used on", "error", fault)
		}
		f.fault = fault
	}
}

func (f *authorityFile) read() error {
	f.files = files.Seen{}
	pem, err := f.files.Read(f.name)
	if err == nil && len(pem) == 0 {
		err = errors.New("the file is empty")
	}
	if err == nil {
		err = f.set(pem)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}
