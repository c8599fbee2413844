// Package deploy tests a secured cluster on machines of their own. A machine is a network
// namespace (package netns) with an address in 10.0.0.0/8, a host name, a home directory and
// a /var/lib. The commands are those that docs/security.md shows, typed as they are there.
//
// It covers the setup of a cluster, what its machines send and store, plaintext, revoked and
// expired access under load, and, with make tls-scan, a scan of its ports by sslyze.
//
// The tests need Linux, root and network namespaces, and are skipped without them. They run
// one after another, because each has a cluster and measures times.
package deploy
