package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// kineFile is the name of kine's database in its data folder.
const kineFile = "state.db"

// kineArgs returns the flags of k3s for a datastore of SQLite; the apiserver compacts it.
func (cp *ControlPlane) kineArgs() []string {
	return []string{
		"--endpoint=sqlite://" + filepath.Join(cp.etcdDir(), kineFile) +
			"?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate",
		"--listen-address=" + cp.EtcdURL(),
		"--metrics-bind-address=0",
	}
}

func (cp *ControlPlane) kineReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := cp.Revision(ctx)
	return err
}

// saveKine copies the files of SQLite while kine is held, which is what a power cut would leave; SQLite recovers it.
func (cp *ControlPlane) saveKine(dir string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !cp.etcd.running() {
		return fmt.Errorf("save kine: %w", ErrStopped)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save kine: %w", err)
	}
	if err := cp.etcd.hold(); err != nil {
		return fmt.Errorf("save kine: %w", err)
	}
	err := copyData(dir, cp.etcdDir())
	return errors.Join(err, cp.etcd.release())
}
