// Package access decides who a caller is, and ends calls whose caller has lost access.
//
//	connection: certificate, Unix socket ┐
//	call: bearer token                   ┴─► Registry.Authenticate ─► auth.Principal ─► package api: rights
//	                                              │ keeps the open call
//	fsm: identities change ─────────────► Registry.Run ends the calls of what is revoked or expired
//
// It owns:
//   - authentication by the replicated identities, by certificates of replicas and by the
//     Unix socket of this replica (authenticate.go, socket.go);
//   - the open calls of each credential (calls.go);
//   - AuthService: tokens, join tokens and joining (service.go, tokens.go, join.go).
//
// It doesn't decide what a caller may do: package auth has the table, and package api
// applies it. Identities are stored by package fsm and changed by the sequencer.
//
// Any replica authenticates by its own copy of the state. One that does not lead refers
// callers with an unknown credential to the leader, whose state is the newest.
//
// Locks: Registry.mu is held for moments, never while the state is read. Registry.ending is
// held while the calls of what was revoked end, and taken before it.
package access
