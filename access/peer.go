package access

import (
	"net"
	"net/http"
	"net/netip"
)

// SameMachine reports whether a connection between two addresses is one within this machine: it comes
// from loopback, or from the very address that it goes to. The kernel drops packets of other machines
// that have one of its own addresses as their source.
func SameMachine(peer, own netip.Addr) bool {
	peer = peer.Unmap()
	return peer.IsLoopback() || peer.IsValid() && peer == own.Unmap()
}

// peerOf returns the address that a request comes from; the zero value if it has none.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap()
}

// isLocal reports whether a process of this machine has sent a request.
func isLocal(r *http.Request) bool {
	var own netip.Addr
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		own = a.AddrPort().Addr()
	}
	return SameMachine(peerOf(r), own)
}

// originOf returns the addresses that one client can have as many of as it likes: all of this machine,
// and the 64 bits of IPv6 that a host gives to itself.
func originOf(r *http.Request) netip.Prefix {
	peer := peerOf(r)
	switch {
	case isLocal(r):
		return netip.Prefix{}
	case peer.Is4():
		return netip.PrefixFrom(peer, 32)
	}
	origin, _ := peer.Prefix(64) // fails without an address
	return origin
}
