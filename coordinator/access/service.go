package access

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Recorder changes the identities; a term's sequencer is one. A method returns when its
// change is stored. It returns a *sequencer.RejectedError if the state rejects it.
type Recorder interface {
	CreateIdentity(ctx context.Context, n sequencer.NewIdentity) (fsm.IdentityID, error)
	AddCredential(ctx context.Context, id fsm.IdentityID, c sequencer.NewCredential, overlap time.Duration) error
	RevokeIdentity(ctx context.Context, by string, ids ...fsm.IdentityID) error
	CreateJoinToken(ctx context.Context, n sequencer.NewJoinToken) (fsm.JoinTokenID, error)
	RedeemJoinToken(ctx context.Context, j sequencer.Join) (fsm.IdentityID, error)
	RevokeJoinToken(ctx context.Context, by string, id fsm.JoinTokenID) error
	PinReplica(ctx context.Context, serverID string, keys ...[32]byte) error
	SetTrust(ctx context.Context, decide func(roots [][]byte) [][]byte) error
	DropCredential(ctx context.Context, id fsm.IdentityID, hash [32]byte) (already bool, err error)
}

// Member is a coordinator of the cluster.
type Member struct{ ServerID, Address string }

// Issued is what a coordinator that joins gets.
type Issued struct {
	Certificate []byte // DER
	CAKey       []byte // PKCS #8
}

// ServiceConfig is what a Service needs. The functions are called from many goroutines and
// must not block.
type ServiceConfig struct {
	Registry *Registry
	Logger   *slog.Logger
	// Recorder returns the current term; the nil interface outside of one.
	Recorder func() Recorder
	// Confirm returns nil once a quorum has confirmed that this replica leads and has
	// applied everything that was acknowledged before.
	Confirm func(context.Context) error
	// ClusterID returns the id of the cluster; empty while unknown.
	ClusterID func() string
	// Members returns the coordinators.
	Members func() []Member
	// CheckIssue returns a *RefusedError if this replica can't issue certificates for
	// coordinators that join.
	CheckIssue func() error
	// Issue issues the certificate of a coordinator that joins. It returns a *RefusedError
	// if this replica has not the key of the CA.
	Issue func(serverID string, hosts []string, key crypto.PublicKey) (Issued, error)
	// CheckReplace returns an error unless a coordinator that joins can take the place of a
	// member. The error is of package membership.
	CheckReplace func(ctx context.Context, serverID string) error
	// Rotation replaces the CA. nil: the cluster has none.
	Rotation Rotation
}

// Service implements dtaskv1.AuthServiceServer. Its methods are safe for concurrent use.
type Service struct {
	dtaskv1.UnimplementedAuthServiceServer

	cfg      ServiceConfig
	joins    *joinLimit
	rotating sync.Mutex // held while the CA changes: one at a time
}

// NewService makes a service. The caller registers it with a gRPC server whose
// interceptors put the caller into the context (auth.FromContext) and turn errors into
// statuses.
func NewService(cfg ServiceConfig) *Service {
	return &Service{cfg: cfg, joins: newJoinLimit()}
}

// InvalidError means that a request breaks a rule; nothing has happened.
type InvalidError struct{ Reason string }

// Error returns the rule.
func (e *InvalidError) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}

// errOpen is returned for everything that needs TLS.
var errOpen = &RefusedError{Reason: "this cluster runs without TLS, on loopback only, and has no identities: everyone on the machine may do everything; start it with --tls-dir to give access by tokens"}

// RefusedError means that the cluster does not do what is requested; nothing has happened.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// ConflictError means that what exists stands in the way of what is requested; nothing has
// happened.
type ConflictError struct{ Reason string }

// Error returns the reason.
func (e *ConflictError) Error() string { return e.Reason }

// NotFoundError means that an identity or a join token is unknown.
type NotFoundError struct{ Reason string }

// Error names it.
func (e *NotFoundError) Error() string { return e.Reason }

// recorder returns the term for a change.
func (s *Service) recorder() (Recorder, error) {
	if s.cfg.Registry.cfg.Replica == nil {
		return nil, errOpen
	}
	if r := s.cfg.Recorder(); r != nil {
		return r, nil
	}
	return nil, ErrAskLeader
}

// timedRecorder returns the term for a change that makes or uses something with a lifetime.
func (s *Service) timedRecorder() (Recorder, error) {
	r, err := s.recorder()
	if err == nil && !s.cfg.Registry.cfg.TimeKnown() {
		err = errTimeUnknown
	}
	return r, err
}

// WhoAmI implements AuthService.
func (s *Service) WhoAmI(ctx context.Context, _ *dtaskv1.WhoAmIRequest) (*dtaskv1.WhoAmIResponse, error) {
	p := auth.FromContext(ctx)
	if p == nil {
		return nil, errors.New("access: a call without a caller")
	}
	return &dtaskv1.WhoAmIResponse{
		Id: p.ID, Name: p.Name, Role: p.Role.String(), Namespaces: p.Namespaces, Via: string(p.Via),
		ExpiresAt: p.ExpiresMS, ClusterId: s.cfg.ClusterID(),
	}, nil
}

// callerName is how the log of changes names the caller.
func callerName(ctx context.Context) string {
	if p := auth.FromContext(ctx); p != nil {
		return cmp.Or(p.Name, string(p.Via))
	}
	return ""
}

const (
	// maxKey bounds an idempotency key, in bytes.
	maxKey = 256
	// maxTTL bounds every lifetime: about 100 years.
	maxTTL       = 100 * 365 * 24 * time.Hour
	hashBytes    = 32
	defaultLimit = 100
	maxLimit     = 1000
)

// checkRequest checks the fields that several requests have.
func checkRequest(key string, secretHash []byte, ttl int64) error {
	switch {
	case key == "" || len(key) > maxKey:
		return invalid("invalid key of %d bytes: must be 1 to %d", len(key), maxKey)
	case len(secretHash) != hashBytes:
		return invalid("invalid hash of %d bytes: must be a SHA-256", len(secretHash))
	case ttl < 0 || ttl > maxTTL.Milliseconds():
		return invalid("invalid lifetime of %d ms: must be at most 100 years", ttl)
	}
	return nil
}

// addresses are those of the coordinators.
func (s *Service) addresses() []string {
	var list []string
	for _, m := range s.cfg.Members() {
		list = append(list, m.Address)
	}
	return list
}

// milliseconds returns a duration of a request.
func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (s *Service) now() int64 { return s.cfg.Registry.cfg.Now().UnixMilli() }

// read reads the state.
func (s *Service) read(f func(st *fsm.State)) {
	s.cfg.Registry.cfg.Machine.Read(func(st *fsm.State, _ uint64) { f(st) })
}
