// Package house holds the tests of the house rules: what holds for the whole source tree and for no
// package in particular. It has no code of its own.
package house
