// Package ledger stores small values by key, such as remembered decisions and tokens, within limits
// that are shared fairly among the owners of the values: an owner that adds ever more displaces only
// its own.
package ledger
