// Package netns gives processes of a test a network of their own, on Linux and with
// root privileges: one network namespace each, joined by a bridge. One direction can
// be cut below TCP, so that even acknowledgments are lost, which no proxy can do.
//
// A direction is cut by giving the sender a wrong hardware address for the receiver:
// its packets leave and nobody receives them. This needs only the ip command and no
// packet filter.
//
// There are two kinds of networks. The hosts of New have loopback addresses, 127.A.B.C,
// because dtask without TLS serves only those; the kernel is configured to route these like
// any other address, and the test is connected, too. The hosts of NewMachines have addresses
// as machines have, 10.A.B.C. The bridge is in a namespace of its own, and no host has
// a route to anywhere else: whatever a process sends there reaches no other network. A test
// gets in by Host.Dial, and reads with Capture what the hosts send.
//
// All objects have random names and are removed by Close.
package netns
