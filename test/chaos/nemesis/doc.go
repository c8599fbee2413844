// Package nemesis breaks a cluster of real processes, with a plan.
//
// Each kind of fault of the catalog (RELIABILITY F1 to F65) is one value, a
// Fault: it is applied to a World, holds, and is healed. A World is a cluster,
// its network of proxies, and who of it is taken by which fault: a fault takes
// what it breaks, so that two never fight over one process or one link, and so
// that what was broken stays recoverable: at no time is the stored data of more
// than a minority at risk, and whoever starts a process again is the one who
// ended it, or the World's nurse if it ended by itself.
//
// Run draws faults by a seeded plan: every few seconds one to three at once,
// each held for a time that is spread evenly over the orders of magnitude
// around the election timeout and the patience with silent workers. After a
// phase of faults (safety) all is healed, and within a limit work must flow
// again (liveness).
//
// Faults of other packages (of disks) plug in by implementing Fault.
package nemesis
