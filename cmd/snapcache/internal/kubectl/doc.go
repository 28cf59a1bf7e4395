// Package kubectl does what "kubectl get" does, with any server of the Kubernetes API: it finds the
// resources that the arguments name, requests them, and prints them as kubectl prints them, byte for
// byte.
//
// Lists are read in pages and printed page by page. Only the formats that need a list as a whole
// (jsonpath, go-template, kyaml, --sort-by) hold it in memory.
package kubectl
