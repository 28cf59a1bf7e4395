// Package tokens remembers the service account tokens that the cluster's server has issued to callers
// of the Kubernetes API, such as a kubelet, and repeats them while the server can't be reached.
//
// A token is only repeated to the user that has got it, for the same service account, audiences and
// bound object, until it expires, and never if the cache knows that an object that it is bound to is
// deleted, or after the server has refused the same request. None is ever made here. Tokens are only stored
// encrypted.
package tokens
