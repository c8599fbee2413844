// Package netns gives processes of a test a network of their own, on Linux and
// with the right to: one network namespace for each, joined by a bridge. There a
// direction can be cut below TCP, so that even acknowledgements are lost, which
// no proxy can do.
//
// A direction is cut by giving the sender a wrong hardware address for the
// receiver: its packets leave and nobody takes them. Nothing but the ip command
// is needed, no packet filter.
//
// The hosts have loopback addresses, 127.A.B.C, since without TLS dtask serves no
// others; the kernel is told to route these few like any other.
//
// What is made has a random name and is removed by Close.
package netns
