// Package proxy is a TCP proxy for one directed link of a cluster under test: from
// one replica, worker or client to one replica. Its rules can change at any time,
// also for open connections.
//
// It simulates lossy, slow, silent, half-open and flapping links between real
// processes of one machine, without special privileges. A program that dials through
// a link gets its address instead of the target's.
//
// Without rules, a link is transparent: while nothing listens at the target, nothing
// listens at the link either, and it stops listening before it passes on that the
// target's connections broke. Code that distinguishes "refused" from "reset"
// therefore sees the same as without the link.
//
// Limitation: the kernel at the link's own end acknowledges bytes that are never
// passed on, so the sender's TCP believes that it is connected. Package netns cuts
// links below TCP.
//
// Goroutines: one accepts, one watches a target that is down, four serve each
// connection. Close ends them and waits. Methods are safe for concurrent use.
package proxy
