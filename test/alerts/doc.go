// Package alerts tests what operators see of a cluster through Prometheus: the list of
// metrics in docs/metrics.md, the rules and the dashboard under deploy, and the
// runbooks in docs/operations.md.
//
// Tests without Prometheus check that the list is what the programs serve, and that
// rules, dashboard and runbooks fit it and each other. `make alerts` also starts a real
// Prometheus and real programs: each alert must fire in its fault, with no other one, and
// all must stay silent under load. `make runbooks` runs the commands of each runbook in the
// fault of its alert, without Prometheus.
//
// It contains only tests. It owns the processes that it starts.
package alerts
