// Package selector evaluates label and field selectors as a kube-apiserver does: which fields of a
// resource can be selected by, the errors of selectors that can't be, and whether an object matches.
package selector
