// Package simulation runs whole clusters within one process and in virtual time:
// three real coordinators with real Raft, real workers and clients, on a network
// in memory that breaks, delays and refuses, over stores that fail, hang and
// flip bits. Everything runs in one testing/synctest bubble, so that a day of a
// cluster takes minutes.
//
// A seed decides what goes wrong and when. The order in which goroutines run is
// the Go scheduler's: a seed repeats the faults and their moments, not every
// step. What is judged are the jobs that were acknowledged, what workers really
// executed, and the digests of the replicas.
//
// What cannot be done in a bubble is left to test/chaos: a process that is
// stopped while others go on, and the loss of what a real disk has not written.
package simulation
