// Package seats limits expensive work that is done at once, fairly between clients, as the seats of a
// kube-apiserver's API Priority and Fairness do.
//
// A small list takes one seat, a large one several. A user holds at most as many seats as it leaves free
// for other users, and a connection as many as it leaves free for the other connections of its user: the
// agents of a fleet may all be one user. Without a free seat, a client waits. The user that holds the
// fewest is next, and of its connections the one that holds the fewest.
//
// Invariants:
//
//   - A client that takes all that it can get leaves seats for the next one, and places to wait too.
//   - Narrow work does not pass wide work for ever: the next waiter, if it needs more seats than are free,
//     keeps the ones behind it, of its user or of all users, waiting.
package seats
