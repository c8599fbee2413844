// Package e2e tests dtask as users use it: the three programs, as separate
// processes, on loopback.
//
// It covers the first five minutes, jobs of all shapes, graphs of scientific workflows
// (package workflows), the exit codes of dtaskctl, idempotency keys through every event of
// a cluster, lost and stopped workers, hanging and deposed leaders, bootstrap, cancelling,
// draining, and damage. Package test/chaos covers repeated loss of leaders.
//
// A few tests run concurrently, each with a cluster of its own unless they are one
// story. A failed test keeps its cluster's directory and prints its name.
package e2e
