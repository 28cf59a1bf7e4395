package object

import "strings"

// CompareRV compares two resourceVersions as decimal numbers of any length and returns -1, 0 or +1.
// If either is not a decimal number, ok is false: it is opaque and has no order. The order holds
// only within one resource of one cluster (Kubernetes guarantees it since 1.35, KEP-5504).
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

// trimZeros is strings.TrimLeft at a fraction of the cost for the usual case: no leading zeros.
func trimZeros(rv string) string {
	for len(rv) > 0 && rv[0] == '0' {
		rv = rv[1:]
	}
	return rv
}
