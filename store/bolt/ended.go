package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// The meta bucket's value "last" is about the newest transaction, and is written by
// each:
//
//	bytes 0..7   number of the transaction, big endian
//	byte  8      1 where it was the last before the file was closed, else 0
//	rest         boot id of the machine that it was made on; empty where it has none
//
// The number ties data to bbolt's meta page: after a power cut on a disk that lied
// about what was written, a new meta page may stand above old data.
var keyLast = []byte("last")

// last is the value decoded.
type last struct {
	tx     uint64
	closed bool
	boot   string
}

func readLast(tx *fileTx) (l last, ok bool) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		return l, false
	}
	b := meta.Get(keyLast)
	if len(b) < 9 || b[8] > 1 {
		return l, false
	}
	return last{tx: binary.BigEndian.Uint64(b), closed: b[8] == 1, boot: string(b[9:])}, true
}

// sign makes a transaction one of ours.
func sign(tx *fileTx, closed bool) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(tx.ID())) //nolint:gosec // counts up from 0
	if closed {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return tx.Bucket(bucketMeta).Put(keyLast, append(b, bootID()...))
}

// signed says that the newest transaction is the one that the data is of.
func signed(tx *fileTx) error {
	l, ok := readLast(tx)
	if !ok {
		return errors.New("meta: what the newest transaction is, is missing")
	}
	if now := uint64(tx.ID()); l.tx != now { //nolint:gosec // counts up from 0
		return fmt.Errorf("meta: the newest transaction is %d, the data is that of %d: writes were lost", now, l.tx)
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
	case l.closed:
		return Closed
	case l.boot != "" && l.boot == bootID():
		return Killed
	}
	return Cut
}
