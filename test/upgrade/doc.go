// Package upgrade upgrades a cluster of real processes under load, as docs/upgrading.md
// describes: from a base build to this one, back while the upgrade is held, forward again,
// and to the end. Nothing may be lost, run twice or retried, and all replicas must agree.
//
// The file base names the commit of the base build: one of main that announces feature
// levels. A clone without that commit fails the test. After each release it names the
// commit of that release. The clusters have no TLS, unless clustertest.TLSVariable gives them
// TLS, tokens and keys of workers. Their base build is then the one that base-tls names: the
// first one of main that has them. After the first release, one base does for both.
//
// This build supports one level more than it does in a release (a fault switch, ADR
// 0029), so that there is a level to raise even if no operation was added since the
// base.
package upgrade
