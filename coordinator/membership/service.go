package membership

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Recorder stores which instance a server id belongs to; a term's sequencer is one.
type Recorder interface {
	// Admit returns when the record is stored. It returns a
	// *sequencer.RejectedError if the server id belongs to another instance.
	Admit(ctx context.Context, r fsm.Replica) error
	// ChangeLevel returns when the change that decide returns for the present level is
	// stored. decide returns nil for none.
	ChangeLevel(ctx context.Context, decide func(level fsm.Level, held bool) *fsm.SetLevel) error
	// SetClusterName returns when the name is stored; already: the cluster had it. It
	// returns a *sequencer.RejectedError below the operation's feature level.
	SetClusterName(ctx context.Context, name string) (already bool, err error)
	// Founded reports whether the term founded the cluster.
	Founded() bool
}

// Node is what this package needs of Raft; *raftnode.Node has it. A change returns
// when it is committed.
type Node interface {
	// Servers returns the members of the cluster's configuration.
	Servers() []raftnode.Server
	// Leader returns id and address of the leader, both empty if unknown.
	Leader() (id, address string)
	Term() uint64
	// State returns leader, follower, candidate or shutdown.
	State() string
	LastIndex() uint64
	CommitIndex() uint64

	AddNonvoter(ctx context.Context, id, address string) error
	AddVoter(ctx context.Context, id, address string) error
	Remove(ctx context.Context, id string) error
	// Transfer makes the voter with the longest log the leader, TransferTo a given
	// one.
	Transfer(ctx context.Context) error
	TransferTo(ctx context.Context, id string) error
	// Barrier returns when all earlier proposals are committed and applied.
	Barrier(ctx context.Context) (term uint64, err error)
	// DurableIndex returns an index up to which a member is known to have stored the
	// log.
	DurableIndex(id string) uint64
	// LastContactOf returns when a member last answered the leader; the zero time if
	// never.
	LastContactOf(id string) time.Time
}

// Self is what this replica reports about itself.
type Self struct {
	Instance    string // 32 hexadecimal digits, made once for a data directory
	ClusterID   string // empty while unknown
	Empty       bool   // the data directory has no Raft state
	Quarantined bool   // it has a quarantined data directory
	PeersDigest string // of --peers
	Version     string
	HTTPAddress string
	WallMS      int64  // wall clock, Unix milliseconds
	LastIndex   uint64 // of the log before Raft runs
	Alarms      []*dtaskv1.Alarm
	AuditHead   *dtaskv1.AuditHead      // nil: no audit log
	Certificate *dtaskv1.OwnCertificate // nil: plaintext
	// DiskFree and DiskSize describe the disk of the data directory, in bytes; DiskSize
	// is 0 if it is unknown.
	DiskFree, DiskSize uint64
	HistoryImport      *dtaskv1.HistoryImport // nil: nothing is imported
}

// Config is what a Service needs. Everything is required. The functions are called
// from many goroutines and must not block.
type Config struct {
	ServerID string
	Machine  *fsm.Machine
	Self     func() Self
	// Node returns the running node; the nil interface until Raft runs.
	Node func() Node
	// Recorder returns the current term; the nil interface outside of one.
	Recorder func() Recorder
	// Confirm returns nil once a quorum has confirmed that this replica leads and
	// has applied everything that was acknowledged before.
	Confirm func(context.Context) error
	// Peers are the connections to the other replicas. The Service does not close
	// them.
	Peers  *Peers
	Logger *slog.Logger
	// UpgradeAfter is how long all members must support a feature level before the
	// leader raises the cluster to it; 0 = at once. Optional.
	UpgradeAfter time.Duration
}

// Service implements dtaskv1.ClusterServiceServer. Its methods are safe for
// concurrent use.
type Service struct {
	dtaskv1.UnimplementedClusterServiceServer

	cfg      Config
	changing chan struct{} // size 1: full while a call changes the members
	leaders  *leaderWaits
	ready    readiness
}

// New makes a service. The caller registers it with a gRPC server whose interceptors
// turn *Error into a status.
func New(cfg Config) (*Service, error) {
	if cfg.ServerID == "" || cfg.Machine == nil || cfg.Self == nil || cfg.Node == nil ||
		cfg.Recorder == nil || cfg.Confirm == nil || cfg.Peers == nil || cfg.Logger == nil {
		return nil, errors.New("membership: incomplete configuration")
	}
	return &Service{cfg: cfg, leaders: newLeaderWaits(), changing: make(chan struct{}, 1)}, nil
}

// Members returns the cluster's configuration, this replica included; empty until
// Raft runs.
func (s *Service) Members() []raftnode.Server {
	if node := s.cfg.Node(); node != nil {
		return node.Servers()
	}
	return nil
}

// stateStarting is the state in Identify until Raft runs.
const stateStarting = "starting"

// Identify implements ClusterService. It needs no Raft and never waits.
func (s *Service) Identify(ctx context.Context, _ *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	self := s.identify()
	if auth.RightIn(ctx, dtaskv1.ClusterService_Identify_FullMethodName) != auth.Full {
		self = briefIdentity(self)
	}
	return self, nil
}

// briefIdentity is what clients and workers need of an identity: who answers, whether it
// knows a leader, and which versions there are.
func briefIdentity(self *dtaskv1.IdentifyResponse) *dtaskv1.IdentifyResponse {
	return &dtaskv1.IdentifyResponse{
		ServerId: self.GetServerId(), ClusterId: self.GetClusterId(), LeaderId: self.GetLeaderId(), State: self.GetState(),
		Version: self.GetVersion(), MinLevel: self.GetMinLevel(), MaxLevel: self.GetMaxLevel(),
	}
}

func (s *Service) identify() *dtaskv1.IdentifyResponse {
	self := s.cfg.Self()
	resp := &dtaskv1.IdentifyResponse{
		ServerId: s.cfg.ServerID, Instance: self.Instance, ClusterId: self.ClusterID,
		Empty: self.Empty, Quarantined: self.Quarantined,
		PeersDigest: self.PeersDigest, Version: self.Version, HttpAddress: self.HTTPAddress, State: stateStarting,
		Applied: s.cfg.Machine.Index(), WallMs: self.WallMS,
		Alarms: self.Alarms, LastIndex: self.LastIndex, Certificate: self.Certificate,
		MinLevel: uint32(fsm.MinLevel), MaxLevel: uint32(s.cfg.Machine.MaxLevel()), AuditHead: self.AuditHead,
		DiskFree: self.DiskFree, DiskSize: self.DiskSize, HistoryImport: self.HistoryImport,
	}
	if node := s.cfg.Node(); node != nil {
		resp.Term, resp.State, resp.LastIndex = node.Term(), node.State(), node.LastIndex()
		resp.LeaderId, _ = node.Leader()
	}
	return resp
}

// Digests implements ClusterService.
func (s *Service) Digests(_ context.Context, r *dtaskv1.DigestsRequest) (*dtaskv1.DigestsResponse, error) {
	resp := &dtaskv1.DigestsResponse{ServerId: s.cfg.ServerID}
	for _, m := range s.cfg.Machine.Marks(r.GetFrom()) {
		resp.Digests = append(resp.Digests, &dtaskv1.Digest{Index: m.Index, Value: m.Digest})
	}
	return resp, nil
}

// leading returns the term and the node if this replica is confirmed to lead.
func (s *Service) leading(ctx context.Context) (Recorder, Node, error) {
	recorder, node := s.cfg.Recorder(), s.cfg.Node()
	if recorder == nil || node == nil {
		return nil, nil, errNotLeader
	}
	return recorder, node, s.cfg.Confirm(ctx)
}
