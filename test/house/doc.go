// Package house holds the tests of the house rules, which are about the whole source tree and no
// package in particular. It has no code of its own.
package house
