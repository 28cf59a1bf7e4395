// Package files gives every file of the agent the same properties: it is for this user only, a
// crash leaves all of it or nothing, and its name survives a power cut. A unix socket is such a file too.
// [Seen] are files that other programs replace.
package files
