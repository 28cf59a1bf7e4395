package bolt

import (
	"errors"
	"fmt"
	"github.com/snapcache/snapcache/store/bolt/internal/format"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

func readLast(tx *fileTx) (format.TxStamp, bool) {
	meta := tx.Bucket(format.BucketMeta)
	if meta == nil {
		return format.TxStamp{}, false
	}
	return format.DecodeTxStamp(meta.Get(format.KeyTxStamp))
}

// sign makes a transaction one of ours.
func sign(tx *fileTx, closed bool) error {
	s := format.TxStamp{Tx: uint64(tx.ID()), Clean: closed, Boot: bootID()} //nolint:gosec // counts up from 0
	return tx.Bucket(format.BucketMeta).Put(format.KeyTxStamp, s.Encode())
}

// signed says that the newest transaction is the one that the data is of.
func signed(tx *fileTx) error {
	l, ok := readLast(tx)
	if !ok {
		return errors.New("meta: what the newest transaction is, is missing")
	}
	if now := uint64(tx.ID()); l.Tx != now { //nolint:gosec // counts up from 0
		return fmt.Errorf("meta: the newest transaction is %d, the data is that of %d: writes were lost", now, l.Tx)
	}
	return nil
}

// bootID tells one start of the machine from another; empty where it can't be told. It
// is asked for by each transaction and stays what it is as long as the process lives.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// Ending is how the last process that wrote a file left it.
type Ending string

const (
	// Closed: the file was closed.
	Closed Ending = "closed"
	// Killed: the process ended without closing the file, and the machine has been up
	// since: all that was written is there.
	Killed Ending = "killed"
	// Cut: the machine stopped, or the file comes from elsewhere. What is in it has to
	// be looked at before it is trusted: see [Check].
	Cut Ending = "cut"
)

// EndingOf returns how the database at path was left. It follows little of what is in
// the file, and survives what it meets. A file that can't be told of is Cut.
func EndingOf(path string) (ending Ending) {
	ending = Cut
	done := make(chan struct{})
	go func() {
		defer close(done)
		debug.SetPanicOnFault(true)
		var err error
		defer recoverCorruption(path, &err)
		if checkWhole(path) != nil {
			return
		}
		info, err := os.Stat(path)
		if err != nil {
			return
		}
		db, err := openBolt(path, Options{ReadOnly: true, MaxBytes: info.Size()})
		if err != nil {
			return
		}
		defer func() { _ = db.Close() }() // only read from
		_ = db.View(func(tx *fileTx) error {
			ending = endingOf(tx)
			return nil
		})
	}()
	<-done
	return ending
}

func endingOf(tx *fileTx) Ending {
	l, ok := readLast(tx)
	switch {
	case !ok || signed(tx) != nil:
		return Cut
	case l.Clean:
		return Closed
	case l.Boot != "" && l.Boot == bootID():
		return Killed
	}
	return Cut
}
