// Package seats limits how much that is expensive is done at once, fairly between clients, as the seats of
// a kube-apiserver's API Priority and Fairness do.
//
// What is narrow takes one seat, what is wide several. A user holds at most as many seats as it leaves free
// for other users, and a connection as many as it leaves free for the other connections of its user: the
// agents of a fleet may all be one user. What finds no seat waits. The user that holds the fewest is next,
// and of its connections the one that holds the fewest.
//
// Invariants:
//
//   - A client that takes all that it can get leaves seats for the next one, and places to wait too.
//   - What is wide is not passed for ever by what is narrow: whatever is next and needs more seats than are
//     free keeps those behind it, of its user or of all users, waiting.
package seats
