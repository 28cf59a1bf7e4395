// Package quota limits how often each of many clients may act, and how much it may hold at once.
package quota
