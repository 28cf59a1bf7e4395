package object

import "strings"

// CompareRV compares two resourceVersions as decimal numbers of any length and
// returns -1, 0 or +1. ok is false where either is no decimal number: then they
// are opaque and no order may be read out of them. It holds within one resource
// of one cluster only (Kubernetes promises the order since 1.35, KEP-5504).
func CompareRV(a, b string) (cmp int, ok bool) {
	if !IsDecimalRV(a) || !IsDecimalRV(b) {
		return 0, false
	}
	a, b = trimZeros(a), trimZeros(b)
	if len(a) != len(b) {
		if len(a) < len(b) {
			return -1, true
		}
		return 1, true
	}
	return strings.Compare(a, b), true
}

// IsDecimalRV reports whether rv is a decimal number and so comparable.
func IsDecimalRV(rv string) bool {
	if rv == "" {
		return false
	}
	for i := 0; i < len(rv); i++ {
		if rv[i] < '0' || rv[i] > '9' {
			return false
		}
	}
	return true
}

// trimZeros is strings.TrimLeft in a fraction of the time: there is nothing to trim.
func trimZeros(rv string) string {
	for len(rv) > 0 && rv[0] == '0' {
		rv = rv[1:]
	}
	return rv
}
