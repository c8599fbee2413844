// Package chaos breaks real clusters under load, and judges what became of the
// work by what the tasks' own code wrote, by what clients were told, and by what
// the replicas' stopped folders hold, not by what dtask says of itself.
//
// Always run: the leader is killed, and the next, and the next; two within a
// second; all coordinators at once for ten seconds (kills_test.go).
//
// Run when asked for, by make chaos, chaos-smoke and chaos-kills: all kinds of
// faults by a seeded plan (package nemesis), on processes, links (packages proxy
// and netns), disks (package faultfs) and clocks, under traffic of many shapes
// (package workload), judged by all checkers (package check). By make
// chaos-measure: for how long work stands still after losses.
//
// Each test prints its seed and the line that repeats it: what is submitted and
// when things are broken follows from the seed, while processes and the kernel
// keep their own time. A failed test keeps data, logs, history and ledger, and
// prints how to look at them again (command recheck).
//
// The tests run one after another: each needs the machine for itself.
package chaos
