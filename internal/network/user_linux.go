package network

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// UserOf returns the id of the user whose process on this machine has the other end of a connection. It is
// false if that is not known: the process has closed it, it is on another machine, or the kernel can't be asked.
func UserOf(c net.Conn) (uid uint32, ok bool) {
	switch c := c.(type) {
	case *net.UnixConn:
		return userOfUnix(c)
	case *net.TCPConn:
		peer, own := addrPortOf(c.RemoteAddr()), addrPortOf(c.LocalAddr())
		return userOfTCP(peer, own)
	}
	return 0, false
}

func userOfUnix(c *net.UnixConn) (uid uint32, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			uid, ok = credentials.Uid, true
		}
	})
	return uid, ok && err == nil
}

func addrPortOf(a net.Addr) netip.AddrPort {
	if a, ok := a.(*net.TCPAddr); ok {
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	}
	return netip.AddrPort{}
}

// The parts of a request to sock_diag(7), and of the answer, struct inet_diag_msg, in bytes.
const (
	diagHead      = unix.SizeofNlMsghdr
	diagRequest   = diagHead + 56
	diagSocket    = 8 // of the struct inet_diag_sockid in the request
	diagUser      = diagHead + 64
	diagInode     = diagHead + 68
	diagAnswer    = diagHead + 72
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	diagAllStates = 1<<32 - 1
)

// userOfTCP asks the kernel for the user of the socket whose own address is peer, as ss does. The kernel
// answers within the call that sends the request.
func userOfTCP(peer, own netip.AddrPort) (uid uint32, ok bool) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	b := make([]byte, 4096)
	if unix.Sendto(fd, diagOf(peer, own), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return 0, false
	}
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil || n < diagAnswer || binary.NativeEndian.Uint16(b[4:]) != diagByFamily {
		return 0, false
	}
	// A socket that its process has closed has no inode, and counts as root's.
	return binary.NativeEndian.Uint32(b[diagUser:]), binary.NativeEndian.Uint32(b[diagInode:]) != 0
}

// diagOf returns the request for one socket.
func diagOf(socket, peer netip.AddrPort) []byte {
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], diagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[diagHead:]
	r[0], r[1] = unix.AF_INET6, syscall.IPPROTO_TCP
	if socket.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(r[4:], diagAllStates)
	id := r[diagSocket:]
	binary.BigEndian.PutUint16(id, socket.Port())
	binary.BigEndian.PutUint16(id[2:], peer.Port())
	copy(id[4:20], socket.Addr().AsSlice())
	copy(id[20:36], peer.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], 1<<64-1) // no cookie
	return b
}
