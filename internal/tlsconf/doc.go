// Package tlsconf makes and checks the certificates of a cluster, and the TLS
// configurations of its ports and connections.
//
//	CA ── issues ──► certificate of a replica (90 days)     a worker's own key (never expires)
//	                     │ directory: tls.crt tls.key ca.crt         │
//	                     ▼                                           ▼
//	                 Watcher ──► ServerConfig, RaftClient,     Trust.Config
//	                             PeerClient, HTTPConfig        (clients, workers)
//
// It owns:
//   - the cluster's CA and the form of a replica's certificate (ca.go, identity.go);
//   - the rules about files and their permissions (files.go, pem.go);
//   - what either side of a connection requires of the other (server.go, client.go,
//     trust.go, verify.go);
//   - following the files, so that a renewed certificate needs no restart (watcher.go);
//   - keys of workers (worker_key.go).
//
// It doesn't decide what a peer may do: a connection to the gRPC port may have no
// certificate, a worker's, or a replica's. It uses TLS 1.3 only and never resumes a
// session: Go does not verify the chain of a resumed one again. Everything is checked in
// VerifyConnection, which is called for every connection, unlike VerifyPeerCertificate.
//
// A tls.Config is never modified after it is in use; a reload makes new ones.
//
// The only goroutine is the caller's of Watcher.Run. Errors name the file or the replica
// and what to do. See docs/adr/0042-tls-between-replicas.md.
package tlsconf
