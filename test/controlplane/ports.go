package controlplane

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Ports are below the ephemeral range, so that no outgoing connection takes the port of a server
// while that is stopped.
const (
	firstPort = 20000
	portCount = 10000
)

// port is a port of 127.0.0.1 that no other user of this package has.
type port struct {
	number int
	lock   io.Closer
}

// ReserveAddress returns an address on loopback that is free, and that no other caller and no control
// plane on this machine gets until it is released, also while no process listens on it.
func ReserveAddress() (address string, release func(), err error) {
	p, err := reservePort(0)
	if err != nil {
		return "", nil, err
	}
	return p.address(), p.release, nil
}

// reservePort reserves a number that is free now, or a given one. The reservation is the lock of a
// file and holds until it is released, with or without a listener.
func reservePort(number int) (port, error) {
	dir := filepath.Join(os.TempDir(), "snapcache-controlplane-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return port{}, fmt.Errorf("reserve port: %w", err)
	}
	if number != 0 {
		return reserveNumber(dir, number)
	}
	start := rand.IntN(portCount)
	var last error
	for i := range portCount {
		p, err := reserveNumber(dir, firstPort+(start+i)%portCount)
		if err == nil {
			return p, nil
		}
		last = err
		if !errors.Is(err, ErrLocked) && !isListenError(err) {
			break
		}
	}
	return port{}, last
}

func reserveNumber(dir string, number int) (port, error) {
	lock, err := tryLock(filepath.Join(dir, strconv.Itoa(number)))
	if err != nil {
		return port{}, fmt.Errorf("reserve port %d: %w", number, err)
	}
	p := port{number: number, lock: lock}
	l, err := net.Listen("tcp", p.address())
	if err != nil {
		lock.Close()
		return port{}, fmt.Errorf("reserve port %d: %w", number, err)
	}
	if err := CloseListener(l); err != nil {
		lock.Close()
		return port{}, fmt.Errorf("reserve port %d: %w", number, err)
	}
	return p, nil
}

func (p port) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// release ends the reservation. The file stays: if it were removed, two processes could lock two
// files of one name.
func (p port) release() {
	if p.lock != nil {
		p.lock.Close()
	}
}

func isListenError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}
