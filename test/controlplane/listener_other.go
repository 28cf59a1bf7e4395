//go:build !unix

package controlplane

import "net"

// CloseListener closes a listener.
func CloseListener(l net.Listener) error { return l.Close() }
