// Package clienttest tests the documents of the Kubernetes API with client-go's clients for them. It is
// a module of its own, because these clients need many more modules than the product.
package clienttest
