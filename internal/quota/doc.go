// Package quota limits how often each of many clients may do something.
package quota
