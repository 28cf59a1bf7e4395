// Package statuspage shows the status of a running agent as a page for a browser: the cached
// collections, how fresh they are, the lists with their reasons, the events of the last hour, and
// alarms.
//
// Invariants:
//
//   - The page is complete without scripts: the server renders it. With scripts it is kept up to
//     date by server-sent events, whose HTML comes from the same template.
//   - It loads nothing from other places. Its Content-Security-Policy allows only its own style
//     and script, by their hashes, and the stream of its own origin.
//   - On the agent's socket it shows all of [localapi.Status]. On a TCP port, which every user of
//     the machine can connect to, it shows no more than the metrics there: fields that may contain
//     a name, a path or an address are left out. See [Options.Bare].
//   - The number of simultaneous viewers is limited.
package statuspage
