// Package transport carries Raft's messages between replicas.
//
//	peers ─► Mux ─────┬─► gRPC listener
//	  (one port)      └─► preface ─► admission ─┬─► Raft connection ─► raft
//	                                            └─► watch connection ─► Config.Answer
//	raft  ─► Transport ─► retry, idle wait ─► raft.NetworkTransport ─► dial, preface, admission ─► peer
//
// It owns:
//   - the port that gRPC and Raft share (mux.go), its limits (limits.go, reject.go), its TLS
//     handshakes (handshake.go), and what gRPC knows of them (credentials.go);
//   - the preface that opens every Raft connection (preface.go), the rules by which both
//     sides accept each other (admission.go), and the reasons of refusals (refusals.go);
//   - the connections (stream.go, socket.go), which Close breaks;
//   - connections that are kept open ahead of their use (links.go);
//   - watch connections and the questions that peers ask on them (watch.go): they break
//     when a process exits, which makes a quick failover possible;
//   - the end of connections whose peer has a certificate of a dropped CA (peer_conns.go), and
//     their replacement before that (renew_links.go);
//   - retries of requests to a peer that returns (retry.go, snapshot.go), idle waiting (idle.go), and
//     what each peer has stored (progress.go);
//   - the commit index of received requests, which raft would exceed (inbound.go).
//
// It does not decide what a broken watch means; package raftnode does.
//
// Goroutines. Mux.Run starts one short-lived goroutine per connection and waits for it.
// Each watch connection that a peer opened has one, each kept connection while it is
// idle, and each Transport for received requests; Transport.Wait waits for them.
package transport
