// Package datadir owns what makes a data directory one replica's: the lock that
// gives it to one process, the format number that every build checks before it opens
// anything else, the identity (identity.json), and quarantine, which renames a
// damaged directory instead of deleting it.
//
//	DIR/lock            flock of the running process
//	DIR/identity.json   format, server id, instance, cluster id
//	DIR/conflict.json   this replica refused to lose committed entries (Conflict)
//	DIR/stopped.json    the last stop was orderly, or the cluster is new; removed at the next start
//	DIR.damaged-TIME    a directory that was quarantined
//
// Raft's files in the same directory belong to packages logstore and raftnode. The
// package starts no goroutines.
package datadir
