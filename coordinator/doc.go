// Package coordinator is one replica of the cluster, put together: the order in
// which its parts start and stop, and the duties that it has beside them.
//
//	identity ─► port (gRPC beside Raft) ─► form or join ─► raftnode ─► leader
//	                │                                         │           │
//	               api, session                              fsm      sequencer, one a term
//
// Run blocks for as long as the replica lives. It starts every goroutine in one
// group and waits for all of them; the one exception is a store that hangs,
// which nothing in a process can end: then Run returns and the process must.
//
// Package main gives the configuration and turns what Run returns into an exit
// code; nothing here reads flags or the environment.
package coordinator
