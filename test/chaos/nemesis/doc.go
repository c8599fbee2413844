// Package nemesis breaks a cluster of real processes according to a plan.
//
// Each kind of fault (F1 to F62, without F57) is one value, a Fault: it is applied to a
// World, holds, and is healed. A World is a cluster, its network of proxies, and a record of
// which fault has taken which part. A fault takes what it breaks, so that two faults
// never affect the same process or link, and the system stays recoverable: the stored
// data of more than a minority is never at risk. The fault that ended a process
// restarts it; the World's nurse restarts processes that ended by themselves.
//
// Run draws faults by a seeded plan: every few seconds one to three at once, each
// held for a time that is spread evenly over the orders of magnitude around the
// election timeout and the liveness timeout of workers. After a phase of faults
// (safety) everything is healed, and work must resume within a limit (liveness).
//
// Faults of other packages (of disks) implement Fault.
package nemesis
