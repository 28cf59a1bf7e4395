// Package quota limits what each of many clients may do: how often, and how much at once.
package quota
