package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Config is what a Registry needs. Functions are called from many goroutines and must not
// block.
type Config struct {
	Machine *fsm.Machine
	// Replica returns the certificate of this replica. nil: the port has no TLS and only
	// this machine reaches it, so everyone may do everything.
	Replica func() *tlsconf.Replica
	// Now is the time of the cluster, by which credentials expire. It is that of this replica's
	// clock until TimeKnown.
	Now       func() time.Time
	TimeKnown func() bool
	// Leads reports whether this replica leads.
	Leads func() bool
	// Removed reports whether a replica was a member of the cluster and is not one any more.
	Removed func(serverID string) bool
	// Isolated reports whether this replica has not heard of a leader for so long that its
	// identities may be outdated.
	Isolated func() bool
	// Denied is called when a caller of the HTTP port is refused; p is nil if it has no
	// credential that counts. Optional.
	Denied func(p *auth.Principal, remote, path string, why auth.Denial, reason string)
	Logger *slog.Logger
}

// UnauthenticatedError means that a call has no credential that counts. It is definite:
// the caller needs another credential.
type UnauthenticatedError struct{ Reason string }

// Error returns the reason.
func (e *UnauthenticatedError) Error() string { return e.Reason }

// ErrAskLeader means that this replica cannot decide about a caller, and the leader can.
var ErrAskLeader = errors.New("access: this replica does not know the credential, or takes it for expired")

// errTimeUnknown is returned by a leader that does not know the cluster's time yet, which takes
// it a moment.
var errTimeUnknown = &BusyError{Reason: "the clocks of the coordinators are not compared yet", RetryAfter: 200 * time.Millisecond}

// Registry authenticates callers and keeps their open calls. Safe for concurrent use.
type Registry struct {
	cfg Config

	ending sync.Mutex // held by endRevoked, before mu

	mu         sync.Mutex // guards what follows
	generation uint64     // grows with each change of the identities
	known      map[hash]*auth.Principal
	calls      map[*call]struct{}
	used       map[hash]int64 // when a credential was last used, Unix milliseconds
	wake       chan struct{}  // size 1: the next expiry may be sooner
}

// hash is the SHA-256 of a token's secret or of a public key.
type hash = [32]byte

// New returns a Registry. The caller runs Run.
func New(cfg Config) *Registry {
	return &Registry{
		cfg: cfg, known: make(map[hash]*auth.Principal), calls: make(map[*call]struct{}),
		used: make(map[hash]int64), wake: make(chan struct{}, 1),
	}
}

// open is the caller of a replica without TLS.
var open = &auth.Principal{Role: auth.Admin, Via: auth.ViaOpen}

// Authenticate returns the caller of a method, or nil if the call has no credential, or
// only an unknown key and the method is for everyone. The
// context that it returns is the call's. Its auth.Access ends, with an
// *UnauthenticatedError as its cause, when the credential stops counting, and the context
// itself cutDelay later. Errors: *UnauthenticatedError for a credential that does not
// count, ErrAskLeader, *BusyError.
func (r *Registry) Authenticate(ctx context.Context, method string) (context.Context, *auth.Principal, error) {
	if r.cfg.Replica == nil {
		return ctx, open, nil
	}
	info := connectionOf(ctx)
	if header := metadata.ValueFromIncomingContext(ctx, "authorization"); len(header) > 0 {
		t, err := auth.ParseHeader(header[0])
		if err != nil {
			return ctx, nil, &UnauthenticatedError{Reason: err.Error()}
		}
		return r.enter(ctx, method, t.Hash(), fsm.TokenCredential)
	}
	switch info := info.(type) {
	case SocketInfo:
		return ctx, &auth.Principal{Name: "local", Role: auth.Admin, Via: auth.ViaSocket}, nil
	case credentials.TLSInfo:
		if len(info.State.PeerCertificates) == 0 {
			return ctx, nil, nil
		}
		if p, err := r.replica(&info.State, method); err != nil || p != nil {
			return ctx, p, err
		}
		inner, p, err := r.enter(ctx, method, tlsconf.KeyHash(info.State.PeerCertificates[0]), fsm.KeyCredential)
		if err != nil && auth.Rights(auth.Anonymous, method) != auth.None {
			return ctx, nil, nil // it joins, with a key that becomes known by that
		}
		return inner, p, err
	}
	return ctx, nil, nil
}

// connectionOf returns what the connection of a call has proved; nil if nothing.
func connectionOf(ctx context.Context) credentials.AuthInfo {
	if p, ok := peer.FromContext(ctx); ok {
		return p.AuthInfo
	}
	return nil
}

// replica returns the principal of a connection by a replica; nil without an error if the
// certificate is of another kind.
func (r *Registry) replica(state *tls.ConnectionState, method string) (*auth.Principal, error) {
	if _, _, err := tlsconf.PeerID(state.PeerCertificates[0]); err != nil {
		return nil, nil //nolint:nilerr,nilnil // a worker's
	}
	key := tlsconf.KeyHash(state.PeerCertificates[0])
	id, err := r.cfg.Replica().VerifyPeer(state)
	if err != nil {
		return nil, &UnauthenticatedError{Reason: err.Error()}
	}
	if !r.pinned(id, key) {
		return nil, &UnauthenticatedError{Reason: fmt.Sprintf("replica %s has another key than the cluster knows", id)}
	}
	// A replica that was removed may ask why it is refused, and for a new server id.
	if r.cfg.Removed(id) && method != dtaskv1.ClusterService_Admit_FullMethodName && method != dtaskv1.ClusterService_Identify_FullMethodName {
		return nil, &UnauthenticatedError{Reason: fmt.Sprintf("replica %s was removed from the cluster", id)}
	}
	return &auth.Principal{Name: id, Role: auth.Replica, Via: auth.ViaPeer}, nil
}

// pinned reports whether a replica may have a key: one of those that the state has for it,
// or any if it has none.
func (r *Registry) pinned(serverID string, key hash) bool {
	ok := false
	r.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		pins := st.ReplicaKeys(serverID)
		ok = len(pins) == 0
		for _, pin := range pins {
			ok = ok || pin == key
		}
	})
	return ok
}

// enter opens a call with a credential of the replicated state.
func (r *Registry) enter(ctx context.Context, method string, h hash, kind fsm.CredentialKind) (context.Context, *auth.Principal, error) {
	for {
		p, generation, known := r.cached(h)
		if !known {
			var err error
			if p, err = r.lookUp(h, kind); err != nil {
				return ctx, nil, err
			}
		}
		if err := r.expired(p); err != nil {
			switch { // the wrong clock of one replica must lock nobody out
			case !r.cfg.Leads():
				err = ErrAskLeader
			case !r.cfg.TimeKnown():
				err = errTimeUnknown
			}
			return ctx, nil, err
		}
		if r.cfg.Isolated() && !tellsState(method) {
			return ctx, nil, ErrAskLeader
		}
		if inner, ok := r.keep(ctx, h, p, generation); ok {
			return inner, p, nil
		}
	}
}

// tellsState reports whether a method only says in which state the replica is. An isolated
// replica answers it: when no replica can lead, these answers say why. It doesn't know whose
// access has ended since, so that a former admin may get a debug bundle from it.
func tellsState(method string) bool {
	switch method {
	case dtaskv1.ClusterService_Status_FullMethodName, dtaskv1.ClusterService_Identify_FullMethodName,
		dtaskv1.AdminService_Debug_FullMethodName, dtaskv1.AdminService_DiskUsage_FullMethodName,
		healthv1.Health_Check_FullMethodName, healthv1.Health_List_FullMethodName, healthv1.Health_Watch_FullMethodName:
		return true
	}
	return false
}

// cached returns the principal of a credential as of a generation.
func (r *Registry) cached(h hash) (p *auth.Principal, generation uint64, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known = r.known[h]
	return p, r.generation, known
}

// lookUp reads the principal of a credential from the state.
func (r *Registry) lookUp(h hash, kind fsm.CredentialKind) (*auth.Principal, error) {
	var identity *fsm.Identity
	r.cfg.Machine.Read(func(st *fsm.State, _ uint64) { identity = st.IdentityByHash(h) })
	if identity == nil || identity.Credential(h).Kind != kind {
		if !r.cfg.Leads() {
			return nil, ErrAskLeader
		}
		if kind == fsm.KeyCredential {
			return nil, &UnauthenticatedError{Reason: "the cluster does not know this worker's key, or has revoked it: join again with a new join string"}
		}
		return nil, &UnauthenticatedError{Reason: "the cluster does not know this token, or has revoked it: log in again, or ask an administrator for another one"}
	}
	if identity.Role == fsm.RoleReplica {
		// Its certificate counts, and not its key alone: a certificate ends with its CA.
		return nil, &UnauthenticatedError{Reason: "coordinator " + identity.Name + " must use the certificate that the cluster issued for its key"}
	}
	return principalOf(identity, h), nil
}

// lookUpToken returns the principal of a token.
func (r *Registry) lookUpToken(h hash) (*auth.Principal, error) {
	p, _, known := r.cached(h)
	if known {
		return p, nil
	}
	return r.lookUp(h, fsm.TokenCredential)
}

// principalOf returns the principal of an identity that uses a credential.
func principalOf(i *fsm.Identity, h hash) *auth.Principal {
	c := i.Credential(h)
	p := &auth.Principal{ID: uint64(i.ID), Name: i.Name, Role: auth.Role(i.Role), Namespaces: i.Namespaces, Via: auth.ViaToken, ExpiresMS: c.ExpiresMS}
	if c.Kind == fsm.KeyCredential {
		p.Via = auth.ViaKey
	}
	if len(i.Labels) > 0 {
		p.Labels = make(map[string]string, len(i.Labels))
		for _, l := range i.Labels {
			p.Labels[l.Key] = l.Value
		}
	}
	return p
}

// expired returns an error if the credential of a principal has expired.
func (r *Registry) expired(p *auth.Principal) error {
	if now := r.cfg.Now(); p.ExpiresMS != 0 && now.UnixMilli() >= p.ExpiresMS {
		return &UnauthenticatedError{Reason: fmt.Sprintf("the credential of %s expired at %s, and the cluster's clock shows %s: ask an administrator for another one",
			p.Name, time.UnixMilli(p.ExpiresMS).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	}
	return nil
}
