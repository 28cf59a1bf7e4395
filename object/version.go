package object

import (
	"cmp"
	"strings"
)

// CompareRV compares two resourceVersions as decimal numbers of any length and returns -1, 0 or +1.
// If either is not a decimal number, ok is false: it is opaque and has no order. The order holds
// only within one resource of one cluster (Kubernetes guarantees it since 1.35, KEP-5504).
func CompareRV(a, b string) (order int, ok bool) {
	if !IsDecimalRV(a) || !IsDecimalRV(b) {
		return 0, false
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)), true
}

// IsDecimalRV reports whether rv is a decimal number and so comparable.
func IsDecimalRV(rv string) bool {
	for i := range len(rv) {
		if rv[i] < '0' || rv[i] > '9' {
			return false
		}
	}
	return rv != ""
}
