package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// userTTL is how long the token of a user who joins is valid.
const userTTL = 90 * 24 * time.Hour

// joinRate bounds the calls of Join per second that have a secret that counts. A secret
// has 128 bits, so the limit protects the log, not the secret.
const joinRate, joinBurst = 50, 200

// joinLimit limits how often a replica tries to join callers.
type joinLimit struct{ limiter *rate.Limiter }

func newJoinLimit() *joinLimit { return &joinLimit{rate.NewLimiter(joinRate, joinBurst)} }

// BusyError means that the call can be repeated after a pause; nothing has happened.
type BusyError struct {
	Reason     string
	RetryAfter time.Duration
}

// Error returns the reason.
func (e *BusyError) Error() string { return e.Reason }

// take returns a *BusyError if there were too many calls.
func (l *joinLimit) take() error {
	if !l.limiter.Allow() {
		return &BusyError{Reason: "too many attempts to join", RetryAfter: time.Second}
	}
	return nil
}

// Join implements AuthService.
func (s *Service) Join(ctx context.Context, r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
	recorder, err := s.timedRecorder()
	if err != nil {
		return nil, err
	}
	op, err := s.redemption(r)
	if err != nil {
		return nil, err
	}
	// Wrong secrets must not reach the log: it is synced to disk. Nor do they count, or
	// everyone on the network could keep the holders of join strings out.
	if err := s.checkJoin(op); err != nil {
		return nil, err
	}
	if err := s.joins.take(); err != nil {
		return nil, err
	}
	if op.Purpose == fsm.JoinCoordinator {
		return s.joinCoordinator(ctx, recorder, op, r)
	}
	return s.redeem(ctx, recorder, op)
}

// redeem makes the identity of a caller.
func (s *Service) redeem(ctx context.Context, recorder Recorder, op sequencer.Join) (*dtaskv1.JoinResponse, error) {
	id, err := recorder.RedeemJoinToken(ctx, op)
	if err != nil {
		return nil, s.joinError(op, err)
	}
	identity, err := s.identity(id)
	if err != nil {
		return nil, err
	}
	if identity.GetState() == stateRevoked { // a repeated request: nobody gets a certificate, or the key of the CA, by it
		return nil, unusable(op, "was used for %s before, whose access was revoked", identity.GetName())
	}
	s.cfg.Logger.InfoContext(ctx, "identity joined", "identity", identity.GetId(), "name", identity.GetName(), "role", identity.GetRole(), "join_token", uint64(op.Token))
	resp := &dtaskv1.JoinResponse{Identity: identity, ClusterId: s.cfg.ClusterID(), Addresses: s.addresses()}
	own := s.cfg.Registry.cfg.Replica()
	resp.Roots = tlsconf.BundleDER(own.Roots)
	if op.Purpose == fsm.JoinCoordinator {
		resp.Roots = tlsconf.BundleDER(own.Bundle)
	}
	return resp, nil
}

// redemption returns the operation of a request.
func (s *Service) redemption(r *dtaskv1.JoinRequest) (sequencer.Join, error) {
	op := sequencer.Join{
		Token: fsm.JoinTokenID(r.GetJoinToken()), SecretHash: sha256.Sum256(r.GetJoinSecret()), Name: r.GetName(),
		Replace: r.GetReplace(), Key: r.GetKey(),
	}
	purpose, err := auth.ParsePurpose(r.GetPurpose())
	if err != nil {
		return op, invalid("%s", err)
	}
	op.Purpose = fsm.JoinPurpose(purpose)
	secret := r.GetPublicKeyHash()
	switch purpose {
	case auth.JoinWorker:
		op.Credential.Kind = fsm.KeyCredential
	case auth.JoinUser:
		op.Credential.Kind, op.Credential.Lifetime = fsm.TokenCredential, userTTL
		secret = r.GetTokenHash()
	case auth.JoinCoordinator:
		op.Credential.Kind, op.Name = fsm.KeyCredential, coordinatorName
		key := sha256.Sum256(r.GetPublicKey())
		secret = key[:]
	}
	if err := checkRequest(r.GetKey(), secret, 0); err != nil {
		return op, err
	}
	op.Credential.Hash = hash(secret)
	if !nameRE.MatchString(op.Name) {
		return op, invalid("invalid name %q: must be 1–63 letters, digits, dots, - and _", op.Name)
	}
	return op, nil
}

// JoinError means that a join string does not work; nothing has happened.
type JoinError struct{ Reason string }

// Error says why and what to do.
func (e *JoinError) Error() string { return e.Reason }

// checkJoin returns why a join token can't be used, as far as this replica knows.
func (s *Service) checkJoin(op sequencer.Join) error {
	var t *fsm.JoinToken
	var old *fsm.Identity // with the same name
	s.read(func(st *fsm.State) {
		t, old = st.JoinToken(op.Token), st.IdentityByName(op.Name, op.Purpose == fsm.JoinPurpose(auth.JoinWorker))
	})
	fail := func(format string, args ...any) error { return unusable(op, format, args...) }
	switch {
	case t == nil || t.Hash != op.SecretHash:
		return fail("is unknown to this cluster, or was removed long after its end")
	case t.IsRevoked():
		return fail("was revoked at %s", timeText(t.RevokedMS))
	case t.Purpose != op.Purpose:
		return fail("is for a %s", t.Purpose)
	case t.IsExpired(s.now()):
		return fail("expired at %s, and the cluster's clock shows %s", timeText(t.ExpiresMS), timeText(s.now()))
	case !t.MatchesName(op.Name):
		return fail("is for names like %s, not for %s", t.NamePattern, op.Name)
	case op.Replace && old != nil && !covers(t.Namespaces, old.Namespaces):
		return fail("may not replace the worker %s, which serves namespaces that the string does not grant", op.Name)
	}
	return nil // whether it is used up depends on the key, and only the log knows
}

// covers reports whether a grant of namespaces includes another one. A join string of one
// team must not end the workers of another team and take their names.
func covers(granted, other []string) bool {
	return slices.Contains(granted, auth.AllNamespaces) ||
		!slices.ContainsFunc(other, func(n string) bool { return !slices.Contains(granted, n) })
}

// unusable returns the error of a join string that can't be used, with what to do.
func unusable(op sequencer.Join, format string, args ...any) error {
	return &JoinError{Reason: fmt.Sprintf("the join string "+format+": dtaskctl join-token create %s makes another one", append(args, op.Purpose)...)}
}

// joinError names the reason for which the log rejected the use of a join token. Most of
// them have been found before.
func (s *Service) joinError(op sequencer.Join, err error) error {
	rejected, ok := errors.AsType[*sequencer.RejectedError](err)
	if !ok {
		return err
	}
	if rejected.Reason == fsm.JoinTokenUsedUp {
		return unusable(op, "was used as often as it may be")
	}
	if named := s.identityError(op.Name, op.Purpose == fsm.JoinWorker, err); named != err { //nolint:errorlint // the same one
		return named
	}
	if known := s.checkJoin(op); known != nil {
		return known // it was revoked or has expired meanwhile
	}
	return err
}

// identityError returns the error for a rejected request to create an identity that says what
// stands in the way; err itself for other reasons.
func (s *Service) identityError(name string, worker bool, err error) error {
	rejected, ok := errors.AsType[*sequencer.RejectedError](err)
	switch {
	case !ok:
	case rejected.Reason == fsm.NameTaken:
		var holder *fsm.Identity
		s.read(func(st *fsm.State) { holder = st.IdentityByName(name, worker) })
		if holder == nil {
			return &ConflictError{Reason: fmt.Sprintf("the name %s was taken until now: try again", name)}
		}
		return &ConflictError{Reason: fmt.Sprintf("the name %s is taken by identity %d, a %s (dtaskctl token revoke %d ends it)", name, holder.ID, holder.Role, holder.ID)}
	case rejected.Reason == fsm.LimitExceeded:
		return &ConflictError{Reason: fmt.Sprintf("the cluster has %d identities and can have no more: an admin must revoke those that are not used (dtaskctl token list), "+
			"and the join string that makes them (dtaskctl join-token list); revoked ones make room an hour later", fsm.MaxIdentities)}
	}
	return err
}

func timeText(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// CreateJoinToken implements AuthService.
func (s *Service) CreateJoinToken(ctx context.Context, r *dtaskv1.CreateJoinTokenRequest) (*dtaskv1.CreateJoinTokenResponse, error) {
	recorder, err := s.timedRecorder()
	if err != nil {
		return nil, err
	}
	if err := checkRequest(r.GetKey(), r.GetSecretHash(), r.GetTtlMs()); err != nil {
		return nil, err
	}
	purpose, role, err := joinRole(r)
	if err != nil {
		return nil, err
	}
	if role == auth.Replica {
		if err := s.cfg.CheckIssue(); err != nil {
			return nil, err // nobody could join with the string
		}
	}
	grant, err := grantOf(role, r.GetNamespaces(), r.GetLabels())
	switch {
	case err != nil:
		return nil, err
	case role == auth.Replica && r.GetNamePattern() != "":
		return nil, invalid("the cluster chooses the names of coordinators: leave the pattern out")
	case role != auth.Worker && len(r.GetLabels()) > 0:
		return nil, invalid("labels are granted to workers only, not to a %s", role)
	case r.GetTtlMs() == 0 && r.GetUses() == 0 && r.GetNamePattern() == "":
		return nil, invalid("a join string that never expires needs a number of uses or a pattern of names")
	}
	id, err := recorder.CreateJoinToken(ctx, sequencer.NewJoinToken{
		Purpose: fsm.JoinPurpose(purpose), Grant: grant, NamePattern: r.GetNamePattern(), Hash: hash(r.GetSecretHash()),
		Uses: r.GetUses(), Lifetime: milliseconds(r.GetTtlMs()), CreatedBy: callerName(ctx), Key: r.GetKey(),
	})
	if err != nil {
		return nil, err
	}
	made, err := s.joinToken(uint64(id))
	name := ""
	s.read(func(st *fsm.State) { name = st.ClusterName() })
	root := s.cfg.Registry.cfg.Replica().Roots[0]
	key := tlsconf.KeyHash(root)
	return &dtaskv1.CreateJoinTokenResponse{
		JoinToken: made, ClusterId: s.cfg.ClusterID(), CaKeyHash: key[:], Addresses: s.addresses(), ClusterName: name,
	}, err
}

// joinRole returns the purpose of a request, and the role of those who join.
func joinRole(r *dtaskv1.CreateJoinTokenRequest) (auth.Purpose, auth.Role, error) {
	purpose, err := auth.ParsePurpose(r.GetPurpose())
	if err != nil {
		return 0, 0, invalid("%s", err)
	}
	switch {
	case purpose == auth.JoinUser && r.GetRole() == "":
		return purpose, auth.Admin, nil
	case purpose == auth.JoinUser:
		role, err := auth.ParseTokenRole(r.GetRole())
		if err != nil {
			return 0, 0, invalid("%s", err)
		}
		return purpose, role, nil
	case r.GetRole() != "":
		return 0, 0, invalid("a %s has no other role: leave the role out", purpose)
	case purpose == auth.JoinWorker:
		return purpose, auth.Worker, nil
	}
	return purpose, auth.Replica, nil
}

// ListJoinTokens implements AuthService.
func (s *Service) ListJoinTokens(ctx context.Context, r *dtaskv1.ListJoinTokensRequest) (*dtaskv1.ListJoinTokensResponse, error) {
	limit, after, err := page(r.GetLimit(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Confirm(ctx); err != nil {
		return nil, err
	}
	now, resp := s.now(), new(dtaskv1.ListJoinTokensResponse)
	s.read(func(st *fsm.State) {
		for t := range st.JoinTokensAfter(fsm.JoinTokenID(after)) {
			m := joinTokenMessage(t, now)
			if !r.GetAll() && m.GetState() != stateActive {
				continue
			}
			if len(resp.GetJoinTokens()) == limit {
				resp.NextPageToken = strconv.FormatUint(resp.GetJoinTokens()[limit-1].GetId(), 10)
				return
			}
			resp.JoinTokens = append(resp.JoinTokens, m)
		}
	})
	return resp, nil
}

// RevokeJoinToken implements AuthService.
func (s *Service) RevokeJoinToken(ctx context.Context, r *dtaskv1.RevokeJoinTokenRequest) (*dtaskv1.RevokeJoinTokenResponse, error) {
	recorder, err := s.recorder()
	if err != nil {
		return nil, err
	}
	before, err := s.joinToken(r.GetId())
	if err != nil {
		return nil, err
	}
	if err := recorder.RevokeJoinToken(ctx, callerName(ctx), fsm.JoinTokenID(r.GetId())); err != nil {
		return nil, err
	}
	after, err := s.joinToken(r.GetId())
	return &dtaskv1.RevokeJoinTokenResponse{JoinToken: after, Already: before.GetState() == stateRevoked}, err
}

// joinToken returns a join token of the state.
func (s *Service) joinToken(id uint64) (*dtaskv1.JoinToken, error) {
	var m *dtaskv1.JoinToken
	s.read(func(st *fsm.State) {
		if t := st.JoinToken(fsm.JoinTokenID(id)); t != nil {
			m = joinTokenMessage(t, s.now())
		}
	})
	if m == nil {
		return nil, &NotFoundError{Reason: "join token " + strconv.FormatUint(id, 10) + " not found: dtaskctl join-token list shows them"}
	}
	return m, nil
}

func joinTokenMessage(t *fsm.JoinToken, now int64) *dtaskv1.JoinToken {
	m := &dtaskv1.JoinToken{
		Id: uint64(t.ID), Purpose: t.Purpose.String(), Role: t.Role.String(), Namespaces: t.Namespaces, NamePattern: t.NamePattern,
		Labels: labelsOf(t.Labels), CreatedBy: t.CreatedBy, CreatedAt: t.CreatedMS, ExpiresAt: t.ExpiresMS,
		Uses: t.Uses, Used: uint32(min(t.Used, uint64(1<<32-1))), State: stateActive, //nolint:gosec // bounded
	}
	switch {
	case t.IsRevoked():
		m.State = stateRevoked
	case t.IsUsedUp():
		m.State = stateUsedUp
	case t.IsExpired(now):
		m.State = stateExpired
	}
	return m
}
