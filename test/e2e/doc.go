// Package e2e tests dtask as users meet it: the three programs, as processes of
// their own, on loopback.
//
// What it is for: the first five minutes, jobs of all shapes in their order, the
// exit codes of dtaskctl, idempotency keys through everything that can happen to
// a cluster, lost and stopped workers, hanging and deposed leaders, the forming
// of clusters, cancelling, draining, and damage.
//
// What it does not do: it kills no leader over and over; test/chaos does.
//
// Tests run a few at a time, each with a cluster of its own unless they are one
// story. A failed test keeps its cluster's directory and names it.
package e2e
