// Package cluster starts, breaks and watches clusters of real processes, for the
// suites and programs under test/.
//
// What it is for: a Cluster is some coordinators and workers of the built
// programs on loopback, each with its own directory, log file and fixed addresses,
// so that one can be killed, stopped, continued and started again as a user's
// would be. Ctl runs dtaskctl; an Observer sees completions as replicas apply
// them.
//
// What it owns: the processes that it started and the directory of the cluster. It
// signals no others. Close ends all processes and leaves the directory; Remove
// removes it.
//
// What it does not do: it knows no *testing.T (package clustertest does) and
// judges nothing (package ledger does). It reads documents of dtaskctl with its
// own types, since the documents are part of the stable surface.
//
// Goroutines: one for each running process, which waits for it to end. Should
// this process die, the kernel kills its children.
package cluster
