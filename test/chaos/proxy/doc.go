// Package proxy is a TCP proxy for one directed link of a cluster under test:
// from one replica, worker or client to one replica. What it does to the bytes
// can be changed at any moment, also for connections that are open.
//
// What it is for: lost, slow, mute, half-open and flapping links between real
// processes of one machine, without any right that a test may lack. A
// program that dials through a link gets its address instead of the target's.
//
// A link is honest where nothing was asked of it: while nobody listens at the
// target, nobody listens at the link either, and it stops listening before it
// passes on that the target's connections broke. So what tells "refused" from
// "reset" sees what it would see without the link.
//
// What it cannot do: the kernel at the link's own end acknowledges what is
// never passed on, so that the sender's TCP believes that it is connected.
// Package netns cuts links below TCP.
//
// Goroutines: one accepts, one watches a target that is down, four serve each
// connection. Close ends them and waits. Methods may be called from anywhere.
package proxy
