package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdQuotaBytes is far above what any test stores, so that etcd never refuses
// a write for lack of space.
const etcdQuotaBytes = 8 << 30

// StartEtcd starts etcd on its data, and waits until it is healthy. An apiserver that has run
// meanwhile connects again at its next retry: the longer etcd was down the later, up to a minute.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.startEtcd(ctx)
}

// StopEtcd stops etcd cleanly, which takes some seconds while an apiserver is connected. The
// apiserver continues: it answers watches and lists with
// resourceVersion=0 from memory, and everything else after a minute with an error.
func (cp *ControlPlane) StopEtcd(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.etcd.stop(ctx, cp.grace)
}

// KillEtcd ends etcd with SIGKILL.
func (cp *ControlPlane) KillEtcd(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.own != nil {
		return cp.own.do(ctx, "kill-datastore")
	}
	return cp.etcd.kill()
}

// RestartEtcd stops etcd cleanly, if it runs, and starts it.
func (cp *ControlPlane) RestartEtcd(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.stopForRestart(ctx, cp.etcd); err != nil {
		return err
	}
	return cp.startEtcd(ctx)
}

func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	if cp.own != nil {
		return cp.own.do(ctx, "start-datastore")
	}
	if cp.etcd.running() {
		return fmt.Errorf("etcd: %w", ErrRunning)
	}
	name, path, args, ready := "etcd", cp.bin.Etcd, cp.etcdArgs(), cp.etcdReady
	if cp.bin.Kine != "" {
		name, path, args, ready = "kine", cp.bin.Kine, cp.kineArgs(), cp.kineReady
		if err := os.MkdirAll(cp.etcdDir(), 0o700); err != nil {
			return fmt.Errorf("kine: %w", err)
		}
	}
	p, err := startProcess(name, cp.path("etcd.log"), path, args...)
	if err != nil {
		return err
	}
	cp.etcd = p
	if err := p.await(ctx, readyTimeout, ready); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

func (cp *ControlPlane) etcdArgs() []string {
	return []string{
		"--data-dir=" + cp.etcdDir(),
		"--listen-client-urls=" + cp.EtcdURL(),
		"--advertise-client-urls=" + cp.EtcdURL(),
		"--listen-peer-urls=http://127.0.0.1:0", // it has no peers
		"--unsafe-no-fsync",
		"--quota-backend-bytes=" + strconv.Itoa(etcdQuotaBytes),
		"--log-level=warn",
	}
}

func (cp *ControlPlane) etcdReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cp.EtcdURL()+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("health: %s", resp.Status)
	}
	return nil
}

// EtcdURL returns etcd's address, which takes no credentials.
func (cp *ControlPlane) EtcdURL() string {
	switch {
	case cp.etcdURL != "":
		return cp.etcdURL
	case cp.own != nil:
		return cp.own.datastore
	}
	return "http://" + cp.etcdPort.address()
}

// EtcdClient returns a new client of etcd; the caller closes it.
func (cp *ControlPlane) EtcdClient() (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{cp.EtcdURL()},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(), // else it writes to standard error
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return c, nil
}

// Revision returns etcd's current revision, which is at or above every resourceVersion that the
// apiserver has returned.
func (cp *ControlPlane) Revision(ctx context.Context) (int64, error) {
	c, err := cp.EtcdClient()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	resp, err := c.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("etcd revision: %w", err)
	}
	return resp.Header.Revision, nil
}

// CompactEtcd compacts etcd at its current revision. A running apiserver still answers watches from
// its own window of events; only if it is restarted too, it refuses them with 410.
func (cp *ControlPlane) CompactEtcd(ctx context.Context) error {
	rev, err := cp.Revision(ctx)
	if err != nil {
		return err
	}
	c, err := cp.EtcdClient()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Compact(ctx, rev, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("compact etcd at revision %d: %w", rev, err)
	}
	return nil
}

// SaveEtcd writes a copy of etcd's data to a folder, for [Options.EtcdData] and
// [ControlPlane.RestoreEtcd]. It replaces the folder's content. Nothing is
// stopped and clients are not affected; etcd must run. Revisions are kept.
func (cp *ControlPlane) SaveEtcd(ctx context.Context, dir string) error {
	switch {
	case cp.own != nil:
		return cp.own.do(ctx, "save", dir)
	case cp.bin.Kine != "":
		return cp.saveKine(dir)
	}
	return cp.saveEtcd(ctx, dir)
}

// SaveEtcdAhead is [ControlPlane.SaveEtcd] with a copy that goes on a number of revisions later, before which all are
// compacted, as an operator restores a cluster with etcdutl. kine has no such tool.
func (cp *ControlPlane) SaveEtcdAhead(ctx context.Context, dir string, revisions int64) error {
	return cp.saveEtcd(ctx, dir, "--bump-revision="+strconv.FormatInt(revisions, 10), "--mark-compacted")
}

func (cp *ControlPlane) saveEtcd(ctx context.Context, dir string, flags ...string) error {
	snapshot := cp.path("snapshot-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ".db")
	defer os.Remove(snapshot)
	if err := cp.downloadSnapshot(ctx, snapshot); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(partial), 0o755); err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	if err := cp.need(ctx, etcdutl, &cp.bin.Etcdutl); err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	args := append([]string{"snapshot", "restore", snapshot, "--data-dir=" + partial}, flags...)
	cmd := exec.CommandContext(ctx, cp.bin.Etcdutl, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("save etcd: %w: %s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	if err := os.Rename(partial, dir); err != nil {
		return fmt.Errorf("save etcd: %w", err)
	}
	return nil
}

func (cp *ControlPlane) downloadSnapshot(ctx context.Context, path string) error {
	c, err := cp.EtcdClient()
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	defer r.Snapshot.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	_, err = io.Copy(f, r.Snapshot)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("snapshot of etcd: %w", err)
	}
	return nil
}

// RestoreEtcd resets the whole control plane to a copy of SaveEtcd: both servers are stopped,
// etcd's data is replaced and both are started. Resource versions go back too, as after an
// operator's restore of a backup.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, dir string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.own != nil {
		return cp.own.restore(ctx, dir)
	}
	if err := cp.stopForRestart(ctx, cp.apiserver); err != nil {
		return err
	}
	if err := cp.stopForRestart(ctx, cp.etcd); err != nil {
		return err
	}
	if err := copyData(cp.etcdDir(), dir); err != nil {
		return err
	}
	if err := cp.startEtcd(ctx); err != nil {
		return err
	}
	return cp.startAPIServer(ctx)
}

func (cp *ControlPlane) etcdDir() string { return cp.path("etcd") }

// copyData replaces the data folder to with a copy of from.
func copyData(to, from string) error {
	_, err := os.Stat(filepath.Join(from, "member"))
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Stat(filepath.Join(from, kineFile))
	}
	if err != nil {
		return fmt.Errorf("%s is no data folder of etcd: %w", from, err)
	}
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("replace etcd's data: %w", err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("replace etcd's data: %w", err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy etcd's data: %w", err)
	}
	return nil
}
