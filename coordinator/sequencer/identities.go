package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// NewCredential is a credential that an identity gets.
type NewCredential struct {
	Kind fsm.CredentialKind
	Hash [32]byte // SHA-256 of the token's secret, or of the public key
	// Lifetime is how long it is valid; 0 = unlimited.
	Lifetime time.Duration
}

// of returns the credential as of a time.
func (c *NewCredential) of(nowMS int64) fsm.Credential {
	return fsm.Credential{Kind: c.Kind, Hash: c.Hash, ExpiresMS: expiry(nowMS, c.Lifetime)}
}

// expiry returns when something that begins now ends; 0 = never.
func expiry(nowMS int64, lifetime time.Duration) int64 {
	if lifetime == 0 {
		return 0
	}
	return nowMS + lifetime.Milliseconds()
}

// NewIdentity is an identity to create.
type NewIdentity struct {
	Name string
	fsm.Grant
	Credential NewCredential
	CreatedBy  string // name of the identity that asks for it
	Key        string // idempotency key; empty: none
}

// CreateIdentity creates an identity, and returns its number. A repeated request with the
// same key returns the number of the first one, also if the identity was revoked since.
// Errors: *RejectedError as for fsm.CreateIdentity, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) CreateIdentity(ctx context.Context, n NewIdentity) (fsm.IdentityID, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (fsm.IdentityID, error) {
		now := b.clusterMS()
		r := b.entry.Do(&fsm.CreateIdentity{
			Name: n.Name, Grant: n.Grant, Credential: n.Credential.of(now), CreatedBy: n.CreatedBy, CreatedMS: now, Key: n.Key,
		})
		return createdIdentity(b, r, 0, n.Key, n.Credential.Hash)
	})
}

// createdIdentity returns the identity that an operation has created, or found.
func createdIdentity(b *batch, r fsm.Reason, token fsm.JoinTokenID, key string, hash [32]byte) (fsm.IdentityID, error) {
	if r != fsm.Accepted {
		return 0, &RejectedError{Reason: r}
	}
	if key != "" {
		if i := b.view.IdentityByKey(token, key); i != nil {
			return i.ID, nil
		}
	}
	return b.view.IdentityByHash(hash).ID, nil
}

// AddCredential gives an identity a second credential. The one that it has expires after
// overlap, unless it does so before. Errors: *RejectedError as for fsm.AddCredential,
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) AddCredential(ctx context.Context, id fsm.IdentityID, c NewCredential, overlap time.Duration) error {
	_, err := do(ctx, s.inbox, classCancel, func(b *batch) (bool, error) {
		now := b.clusterMS()
		return settled(b.entry.Do(&fsm.AddCredential{
			ID: id, Credential: c.of(now), CreatedMS: now, OthersExpireMS: now + overlap.Milliseconds(),
		}), false)
	})
	return err
}

// RevokeIdentity revokes identities, 1 to 100 with ascending numbers, all or none. The
// sessions of workers among them end, and their attempts are requeued at once: nothing
// that they report counts. An identity that is revoked stays as it is. Errors:
// *RejectedError with IdentityNotFound, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RevokeIdentity(ctx context.Context, by string, ids ...fsm.IdentityID) error {
	_, err := do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		return settled(b.entry.Do(&fsm.RevokeIdentity{IDs: ids, AtMS: b.clusterMS(), By: by}), false)
	})
	return err
}

// DropCredential removes one of the two credentials of an identity; already means that it
// has no such credential. Errors: *RejectedError as for fsm.DropCredential, *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) DropCredential(ctx context.Context, id fsm.IdentityID, hash [32]byte) (already bool, err error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (bool, error) {
		r := b.entry.Do(&fsm.DropCredential{ID: id, Hash: hash})
		return settled(r, r == fsm.AlreadyEnded)
	})
}

// NewJoinToken is a join token to create.
type NewJoinToken struct {
	Purpose     fsm.JoinPurpose
	fsm.Grant   // of the identities
	NamePattern string
	Hash        [32]byte      // SHA-256 of the secret
	Uses        uint32        // 0 = unlimited
	Lifetime    time.Duration // 0 = unlimited
	CreatedBy   string        // name of the identity that asks for it
	Key         string        // idempotency key; empty: none
}

// CreateJoinToken creates a join token, and returns its number. A repeated request with
// the same key returns the number of the first one. Errors: *RejectedError as for
// fsm.CreateJoinToken, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) CreateJoinToken(ctx context.Context, n NewJoinToken) (fsm.JoinTokenID, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (fsm.JoinTokenID, error) {
		now := b.clusterMS()
		r := b.entry.Do(&fsm.CreateJoinToken{
			Purpose: n.Purpose, Grant: n.Grant, NamePattern: n.NamePattern, Hash: n.Hash, Uses: n.Uses, ExpiresMS: expiry(now, n.Lifetime),
			CreatedBy: n.CreatedBy, CreatedMS: now, Key: n.Key,
		})
		if r != fsm.Accepted {
			return 0, &RejectedError{Reason: r}
		}
		if x := b.view.JoinTokenByKey(n.Key); x != nil {
			return x.ID, nil
		}
		return b.view.NextJoinToken() - 1, nil
	})
}

// Join is a request to create an identity with a join token.
type Join struct {
	Token      fsm.JoinTokenID
	SecretHash [32]byte
	Purpose    fsm.JoinPurpose // what the caller joins as
	Name       string
	Credential NewCredential
	Replace    bool   // a live worker with the same name is revoked
	Key        string // idempotency key; empty: none
}

// RedeemJoinToken creates an identity with a join token, and returns its number. A
// repeated request with the same key, or that of a worker which has joined with the same
// credential, returns the number of the first one. Errors: *RejectedError as for
// fsm.RedeemJoinToken, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RedeemJoinToken(ctx context.Context, j Join) (fsm.IdentityID, error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (fsm.IdentityID, error) {
		now := b.clusterMS()
		r := b.entry.Do(&fsm.RedeemJoinToken{
			Token: j.Token, SecretHash: j.SecretHash, Purpose: j.Purpose, Name: j.Name, Credential: j.Credential.of(now),
			Replace: j.Replace, AtMS: now, Key: j.Key,
		})
		return createdIdentity(b, r, j.Token, j.Key, j.Credential.Hash)
	})
}

// RevokeJoinToken ends a join token. Errors: *RejectedError with JoinTokenNotFound,
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RevokeJoinToken(ctx context.Context, by string, id fsm.JoinTokenID) error {
	_, err := do(ctx, s.inbox, classCancel, func(b *batch) (bool, error) {
		return settled(b.entry.Do(&fsm.RevokeJoinToken{ID: id, AtMS: b.clusterMS(), By: by}), false)
	})
	return err
}

// SetTrust replaces the root certificates of the cluster's CA with those that decide
// returns for the present ones; they stay if it returns nil. decide must not change them.
// Errors: *RejectedError with Malformed or AboveLevel, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) SetTrust(ctx context.Context, decide func(roots [][]byte) [][]byte) error {
	_, err := do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		roots := decide(b.view.Trust())
		if roots == nil {
			return false, nil
		}
		return settled(b.entry.Do(&fsm.SetTrust{Roots: roots, AtMS: b.clusterMS()}), false)
	})
	return err
}

// PinReplica records the SHA-256 of the public keys that a replica may have, 1 or 2, in
// place of those before. Errors as for SetTrust, and LimitExceeded.
func (s *Sequencer) PinReplica(ctx context.Context, serverID string, keys ...[32]byte) error {
	_, err := apply(ctx, s.inbox, classWorker, &fsm.PinReplica{ServerID: serverID, KeyHashes: keys}, nil)
	return err
}
