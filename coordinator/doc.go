// Package coordinator runs one replica of the cluster: it starts the replica's parts
// in order, connects them, and stops them.
//
//	directory ─► port (gRPC and Raft) ─► form or join ─► raftnode ─► leader
//	                 │                                      │           │
//	         api, session, membership                      fsm      sequencer, one a term
//
// run.go is the order; each other file is one part that no package of its own owns:
//
//	directory.go       opens, checks and quarantines the data directory
//	parts.go           builds the parts and connects them
//	leadership.go      the duty that runs a sequencer for each term
//	clock.go           the duty that compares wall clocks
//	cluster_clock.go   the time by which credentials expire
//	backup_schedule.go the duty that has backups written at an interval
//	notifications.go   webhooks and dead-letter hooks, beside the sequencer
//	history.go         the history and where to fetch missing jobs
//	replicated.go      the state machine as raftnode needs it
//	metrics.go, summary.go, http.go
//	seams.go           where simulations and fault switches interpose
//
// Run blocks for as long as the replica lives. It starts every goroutine in one group
// and waits for all of them. The one exception is a store, or a directory of backups, that
// hangs, which nothing in a process can stop: then Run returns and the process must exit.
//
// Package main provides the configuration and turns Run's error into an exit code;
// nothing here reads flags or the environment.
package coordinator
