// Package chaos breaks real clusters under load. It judges a run by what the tasks'
// own code wrote, by the answers that clients received, and by the data directories
// of the stopped replicas, not by what dtask reports.
//
// Tests that always run: the leader is killed repeatedly; two leaders are killed
// within a second; all coordinators are down for ten seconds (kills_test.go).
//
// Tests that run on request, by make chaos, chaos-smoke and chaos-kills: all kinds of
// faults by a seeded plan (package nemesis), on processes, links (packages proxy and
// netns), disks (package faultfs) and clocks, under traffic of many shapes (package
// workload), judged by all checkers (package check). make chaos-old-copies brings back old copies
// of data directories, which a cluster can only report. make chaos-commands kills
// supervisors, workers and leaders under 10,000 short commands that leave behind what
// they can. make chaos-limits hands limits of 1 from task to task 10,000 times. make
// chaos-saturated expects that nothing healthy is replaced on saturated processors. make
// chaos-measure measures the time without completions after losses.
//
// Clusters have TLS, tokens and keys of workers by default or for every second seed, as
// docs/testing.md lists.
//
// Each test prints its seed and the line that repeats it. The seed decides what is
// submitted and when things are broken; processes and the kernel keep their own time.
// A failed test keeps data, logs, history and ledger, and prints how to check them
// again (command recheck).
//
// The tests run one after another, because each needs the whole machine.
package chaos
