package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/snapcache/snapcache/store/bolt/internal/format"
)

// metaNumber returns a number of 8 bytes in the meta bucket, 0 if it is absent.
func metaNumber(tx *Tx, name []byte) uint64 {
	if raw := tx.Bucket(format.BucketMeta).Get(name); len(raw) == 8 {
		return binary.BigEndian.Uint64(raw)
	}
	return 0
}

func txStamp(tx *Tx) (format.TxStamp, bool) {
	meta := tx.Bucket(format.BucketMeta)
	if meta == nil {
		return format.TxStamp{}, false
	}
	return format.DecodeTxStamp(meta.Get(format.KeyTxStamp))
}

// Stamp stamps a write transaction; it is the transaction's last change. clean is true for the last
// transaction before the file is closed.
func Stamp(tx *Tx, clean bool) error {
	s := format.TxStamp{Tx: uint64(tx.ID()), Clean: clean, Boot: BootID()} //nolint:gosec // counts up from 0
	return tx.Bucket(format.BucketMeta).Put(format.KeyTxStamp, s.Encode())
}

// VerifyStamp returns an error unless the newest transaction wrote the file's stamp.
func VerifyStamp(tx *Tx) error {
	s, ok := txStamp(tx)
	if !ok {
		return errors.New("meta: what the newest transaction is, is missing")
	}
	if now := uint64(tx.ID()); s.Tx != now { //nolint:gosec // counts up from 0
		return fmt.Errorf("meta: the newest transaction is %d, the data is that of %d: writes were lost", now, s.Tx)
	}
	return nil
}

// BootID identifies one start of the machine; empty if the system has no such id. It does not
// change while the process runs.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Shutdown is how the last process that wrote a file left it, see bolt.Shutdown.
type Shutdown string

// The kinds of shutdown.
const (
	Clean     Shutdown = "closed"
	Crashed   Shutdown = "killed"
	PowerLoss Shutdown = "cut"
)

// LastShutdown returns how the file at path was left, see bolt.LastShutdown.
func LastShutdown(path string) Shutdown {
	last := PowerLoss
	_ = Guarded(path, func() error { // on an error the result is PowerLoss
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		f, err := Open(path, Options{ReadOnly: true, MaxBytes: info.Size()})
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read from
		return f.View(func(tx *Tx) error { last = shutdownOf(tx); return nil })
	})
	return last
}

func shutdownOf(tx *Tx) Shutdown {
	s, ok := txStamp(tx)
	switch {
	case !ok || VerifyStamp(tx) != nil:
		return PowerLoss
	case s.Clean:
		return Clean
	case s.Boot != "" && s.Boot == BootID():
		return Crashed
	}
	return PowerLoss
}
