// Package statuspage shows the status of a running agent as a page for a browser: what is
// cached, how fresh it is, what was listed and why, what happened in the last hour, and
// what wants somebody's attention.
//
// What holds:
//
//   - The page is whole without scripts: the server renders it. With them it is kept up to
//     date by server-sent events of the same HTML, made of the same template.
//   - It loads nothing from anywhere, and its Content-Security-Policy allows nothing but its
//     own style and script, by their hashes, and the stream of its own origin.
//   - On the agent's socket it tells what [localapi.Status] has. On a TCP port, which every
//     user of the machine can connect to, it tells what the metrics there tell and no more: what
//     may have a name, a path or an address in it is left out. See [Options.Bare].
//   - How many can look at the same time is bounded.
package statuspage
