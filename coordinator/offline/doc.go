// Package offline reads and replaces the data directories of stopped replicas, for the
// operator who has to decide which history a cluster keeps:
//
//	Inspect   what a directory contains; changes nothing
//	Missing   the jobs that a serving cluster does not have; Export writes them as job files
//	Restore   the directory of a new cluster, from a backup
//	Recover   a new cluster from one directory, when a majority of the others is lost
//	Discard   moves a directory aside, so that its replica gets its data from the others
//
// Each of them locks the directory first, and fails if a process uses it. No content is
// ever deleted: a directory that is replaced or discarded is renamed.
//
// The package starts no goroutines that outlive a call. Its errors name the directory.
// A damaged directory is a *logstore.DamageError.
package offline
