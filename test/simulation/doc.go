// Package simulation runs whole clusters in one process and in virtual time:
// three real coordinators with real Raft, real workers and clients, on an
// in-memory network that breaks, delays and refuses connections, over stores
// that fail, hang and flip bits. Everything runs in one testing/synctest
// bubble, so that a day of a cluster takes minutes.
//
// A seed determines the faults and their times. The Go scheduler still orders
// the goroutines, so a seed doesn't repeat every step. The simulation checks
// acknowledged jobs, what workers really executed, and the digests of the
// replicas.
//
// test/chaos covers what a bubble can't: a process that is paused while others
// continue, and the loss of what a real disk has not written.
package simulation
