// Package membership answers who is a member of the cluster: which replicas there
// are, with which data directory each one may run, and whether they agree.
//
//	start      datadir: identity, format, lock        Bootstrap: found, join or restart
//	             └─► CheckStale: is the directory as new as what was acknowledged?
//	running    Service (RPCs): Status, Identify, Admit, AddMember, RemoveMember, …
//	           Watch: is this replica still a member?   Comparer: do the digests agree?
//	leading    Reconciler: record instances, promote non-voters, raise low-water marks
//	           Upgrader: raise the feature level when all members support a higher one
//
// # What it owns
//
// The rules of admission and rejoining (ADR 0015), the decision to found a cluster,
// the connections to the other replicas ([Peers]), the comparison of state digests,
// and the decision to raise the feature level (ADR 0038). The instance of each server
// id and the level are part of the replicated state; the voters are part of Raft's
// configuration. This package keeps only a copy of the first two in the data directory.
//
// # What it does not do
//
// It proposes nothing itself: records go through the term's sequencer ([Recorder]),
// changes of the configuration through Raft ([Node]).
//
// # Goroutines and errors
//
// Every function waits for the goroutines that it starts. Handlers return *[Error],
// which package coordinator translates for callers. A *transport.RefusedError means
// that the cluster does not accept this replica: the process must exit.
package membership
