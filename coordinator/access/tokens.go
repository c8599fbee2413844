package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// nameRE matches the name of an identity.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`)

// CreateToken implements AuthService.
func (s *Service) CreateToken(ctx context.Context, r *dtaskv1.CreateTokenRequest) (*dtaskv1.CreateTokenResponse, error) {
	recorder, err := s.timedRecorder()
	if err != nil {
		return nil, err
	}
	if err := checkRequest(r.GetKey(), r.GetTokenHash(), r.GetTtlMs()); err != nil {
		return nil, err
	}
	if !nameRE.MatchString(r.GetName()) {
		return nil, invalid("invalid name %q: must be 1–63 letters, digits, dots, - and _", r.GetName())
	}
	role, err := auth.ParseTokenRole(r.GetRole())
	if err != nil {
		return nil, invalid("%s", err)
	}
	grant, err := grantOf(role, r.GetNamespaces(), nil)
	if err != nil {
		return nil, err
	}
	id, err := recorder.CreateIdentity(ctx, sequencer.NewIdentity{
		Name: r.GetName(), Grant: grant, Credential: newToken(r.GetTokenHash(), r.GetTtlMs()), CreatedBy: callerName(ctx), Key: r.GetKey(),
	})
	if err != nil {
		return nil, s.identityError(r.GetName(), false, err)
	}
	identity, err := s.identity(id)
	return &dtaskv1.CreateTokenResponse{Identity: identity}, err
}

func newToken(secretHash []byte, ttl int64) sequencer.NewCredential {
	return sequencer.NewCredential{Kind: fsm.TokenCredential, Hash: hash(secretHash), Lifetime: milliseconds(ttl)}
}

// grantOf returns what an identity gets. Without namespaces, a worker gets all, a
// submitter or reader the default one; the other roles have none.
func grantOf(role auth.Role, namespaces []string, labels map[string]string) (fsm.Grant, error) {
	g := fsm.Grant{Role: fsm.Role(role)}
	switch {
	case !role.Scoped() && len(namespaces) > 0:
		return g, invalid("the role %s is not limited to namespaces: leave them out, or choose submitter or reader", role)
	case !role.Scoped():
	case len(namespaces) == 0 && role == auth.Worker:
		g.Namespaces = []string{auth.AllNamespaces}
	case len(namespaces) == 0:
		g.Namespaces = []string{auth.DefaultNamespace}
	default:
		g.Namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
		if err := auth.CheckNamespaces(g.Namespaces); err != nil {
			return g, invalid("%s", err)
		}
	}
	for key, value := range labels {
		if key == "" {
			return g, invalid("invalid label %q: its name must not be empty", "="+value)
		}
		if key == fsm.WorkerLabel {
			return g, invalid("invalid label %q: workers have the label worker by themselves, with their name", key+"="+value)
		}
		if fsm.IsOwnLabel(key) {
			return g, invalid("invalid label %q: the coordinators set it, and no worker gets it by a grant", key+"="+value)
		}
		g.Labels = append(g.Labels, fsm.Label{Key: key, Value: value})
	}
	slices.SortFunc(g.Labels, func(a, b fsm.Label) int { return compareTexts(a.Key, b.Key) })
	return g, nil
}

func compareTexts(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ListTokens implements AuthService.
func (s *Service) ListTokens(ctx context.Context, r *dtaskv1.ListTokensRequest) (*dtaskv1.ListTokensResponse, error) {
	limit, after, err := page(r.GetLimit(), r.GetPageToken())
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Confirm(ctx); err != nil {
		return nil, err
	}
	now, resp := s.now(), new(dtaskv1.ListTokensResponse)
	s.read(func(st *fsm.State) {
		for i := range st.IdentitiesAfter(fsm.IdentityID(after)) {
			if !r.GetAll() && !i.IsLive(now) {
				continue
			}
			if len(resp.GetIdentities()) == limit {
				resp.NextPageToken = strconv.FormatUint(resp.GetIdentities()[limit-1].GetId(), 10)
				return
			}
			resp.Identities = append(resp.Identities, s.identityMessage(i, now))
		}
		resp.Identities = append(resp.Identities, s.certified(st)...)
	})
	return resp, nil
}

// certified returns the coordinators that have a certificate and no identity, such as the
// first one: they have access, too.
func (s *Service) certified(st *fsm.State) (list []*dtaskv1.Identity) {
	for _, m := range s.cfg.Members() {
		if i := st.IdentityByName(m.ServerID, false); i == nil || i.Role != fsm.RoleReplica {
			list = append(list, &dtaskv1.Identity{Name: m.ServerID, Role: auth.Replica.String(), State: stateActive})
		}
	}
	return list
}

// page returns the limit and the number after which a page begins.
func page(limit uint32, token string) (n int, after uint64, err error) {
	if limit > maxLimit {
		return 0, 0, invalid("invalid limit %d: must be 1 to %d, or 0 for %d", limit, maxLimit, defaultLimit)
	}
	if limit == 0 {
		limit = defaultLimit
	}
	if token != "" {
		if after, err = strconv.ParseUint(token, 10, 64); err != nil {
			return 0, 0, invalid("invalid page_token %q: must be the next_page_token of a response", token)
		}
	}
	return int(limit), after, nil
}

// RotateToken implements AuthService.
func (s *Service) RotateToken(ctx context.Context, r *dtaskv1.RotateTokenRequest) (*dtaskv1.RotateTokenResponse, error) {
	recorder, err := s.timedRecorder()
	if err != nil {
		return nil, err
	}
	if err := checkRequest("-", r.GetTokenHash(), r.GetTtlMs()); err != nil {
		return nil, err
	}
	if r.GetOverlapMs() < 0 || r.GetOverlapMs() > maxTTL.Milliseconds() {
		return nil, invalid("invalid overlap of %d ms: must be 0 or more", r.GetOverlapMs())
	}
	if err := s.checkRotation(r.GetId()); err != nil {
		return nil, err
	}
	s.outlive(ctx, r.GetId())
	// Without an overlap the old token ends a moment later: 0 would leave it as it is.
	overlap := max(time.Millisecond, milliseconds(r.GetOverlapMs()))
	err = recorder.AddCredential(ctx, fsm.IdentityID(r.GetId()), newToken(r.GetTokenHash(), r.GetTtlMs()), overlap)
	if rejected, ok := errors.AsType[*sequencer.RejectedError](err); ok && rejected.Reason == fsm.LimitExceeded {
		return nil, &ConflictError{Reason: fmt.Sprintf("identity %d has two tokens that work: wait until the old one expires (dtaskctl token list shows when), or revoke the identity and create another one", r.GetId())}
	}
	if err != nil {
		return nil, err
	}
	s.cfg.Registry.endRevoked() // the end of the old token is known here before the answer
	identity, err := s.identity(fsm.IdentityID(r.GetId()))
	return &dtaskv1.RotateTokenResponse{Identity: identity}, err
}

// checkRotation returns an error for an identity that has no tokens.
func (s *Service) checkRotation(id uint64) error {
	identity, err := s.identity(fsm.IdentityID(id))
	if err != nil {
		return err
	}
	if role := identity.GetRole(); role == auth.Worker.String() || role == auth.Replica.String() {
		return invalid("identity %d is a %s, which has a key and no token: revoke it and let it join again", id, role)
	}
	return nil
}

// RevokeToken implements AuthService.
func (s *Service) RevokeToken(ctx context.Context, r *dtaskv1.RevokeTokenRequest) (*dtaskv1.RevokeTokenResponse, error) {
	recorder, err := s.recorder()
	if err != nil {
		return nil, err
	}
	before, err := s.identity(fsm.IdentityID(r.GetId()))
	if err != nil {
		return nil, err
	}
	if member := s.memberOf(before); member != "" {
		return nil, &RefusedError{Reason: fmt.Sprintf("identity %[1]d is the coordinator %[2]s, whose certificate counts as long as it is a member: run dtaskctl cluster remove %[2]s; "+
			"if others have controlled its machine, which has the key of the CA, then run dtaskctl tls rotate-ca --compromised", r.GetId(), member)}
	}
	s.outlive(ctx, r.GetId())
	if err := recorder.RevokeIdentity(ctx, callerName(ctx), fsm.IdentityID(r.GetId())); err != nil {
		return nil, err
	}
	s.cfg.Registry.endRevoked() // before the answer: nothing that is sent after it is let in here
	after, err := s.identity(fsm.IdentityID(r.GetId()))
	return &dtaskv1.RevokeTokenResponse{
		Identity: after, Already: before.GetState() == stateRevoked, LastAdmin: before.GetRole() == auth.Admin.String() && !s.hasAdmin(),
	}, err
}

// memberOf returns the server id of the member whose certificate an identity has; empty if it
// is not a member's.
func (s *Service) memberOf(i *dtaskv1.Identity) string {
	if i.GetRole() != auth.Replica.String() {
		return ""
	}
	for _, m := range s.cfg.Members() {
		if tlsconf.Covers(i.GetName(), m.ServerID) {
			return m.ServerID
		}
	}
	return ""
}

// outlive lets a call of an identity return its answer although it ends the access of that
// identity.
func (s *Service) outlive(ctx context.Context, id uint64) {
	if p := auth.FromContext(ctx); p != nil && p.ID == id {
		s.cfg.Registry.Outlive(ctx)
	}
}

// hasAdmin reports whether a token with the role admin counts.
func (s *Service) hasAdmin() bool {
	now, found := s.now(), false
	s.read(func(st *fsm.State) {
		for i := range st.Identities() {
			found = found || i.Role == fsm.RoleAdmin && i.IsLive(now)
		}
	})
	return found
}

// identity returns an identity of the state.
func (s *Service) identity(id fsm.IdentityID) (*dtaskv1.Identity, error) {
	var m *dtaskv1.Identity
	s.read(func(st *fsm.State) {
		if i := st.Identity(id); i != nil {
			m = s.identityMessage(i, s.now())
		}
	})
	if m == nil {
		return nil, &NotFoundError{Reason: "identity " + strconv.FormatUint(uint64(id), 10) + " not found: dtaskctl token list shows them"}
	}
	return m, nil
}

// The states of identities and join tokens.
const (
	stateActive  = "active"
	stateExpired = "expired"
	stateRevoked = "revoked"
	stateUsedUp  = "used up"
)

func (s *Service) identityMessage(i *fsm.Identity, now int64) *dtaskv1.Identity {
	m := &dtaskv1.Identity{
		Id: uint64(i.ID), Name: i.Name, Role: i.Role.String(), Namespaces: i.Namespaces, Labels: labelsOf(i.Labels),
		CreatedBy: i.CreatedBy, CreatedAt: i.CreatedMS, State: stateActive,
	}
	switch {
	case i.IsRevoked():
		m.State = stateRevoked
	case !i.IsLive(now):
		m.State = stateExpired
	}
	for n, c := range i.Credentials {
		kind := "token"
		if c.Kind == fsm.KeyCredential {
			kind = "key"
		}
		used := s.cfg.Registry.lastUsed(c.Hash)
		m.Credentials = append(m.Credentials, &dtaskv1.Credential{
			Id: auth.CredentialID(c.Hash), Kind: kind, CreatedAt: c.CreatedMS, ExpiresAt: c.ExpiresMS, LastUsedAt: used,
		})
		m.LastUsedAt = max(m.GetLastUsedAt(), used)
		if n == 0 || c.ExpiresMS == 0 || m.GetExpiresAt() != 0 && c.ExpiresMS > m.GetExpiresAt() {
			m.ExpiresAt = c.ExpiresMS
		}
	}
	return m
}

func labelsOf(list []fsm.Label) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, l := range list {
		m[l.Key] = l.Value
	}
	return m
}
