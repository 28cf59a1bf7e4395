// Package documents keeps the server's discovery documents for the time without it. A client that sees fewer resources
// while the server is away behaves in another way: helm renders other manifests, and kubectl reports that there is no such
// resource in place of a server that can't be reached.
package documents
