package coordinator

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// apiConfig is what the gRPC services see of this replica.
func (r *replica) apiConfig(sessions *session.Service) api.Config {
	return api.Config{
		ServerID: r.id, Machine: r.machine, Logger: r.log, Logs: sessions, History: r.history,
		Leader: func() api.Leader {
			if s := r.term.Load(); s != nil {
				return s
			}
			return nil
		},
		Raft: func() api.Raft {
			if n := r.node.Load(); n != nil {
				return n
			}
			return nil
		},
		Totals: r.totals.Stats,
		Process: func() api.Process {
			p := api.Process{LeaderChanges: r.leaderChanges.Load()}
			if n := r.node.Load(); n != nil {
				p.Syncs = n.Stats().Syncs
			}
			return p
		},
		Enter:        entering(sessions),
		Classify:     classify,
		TaskDefaults: r.cfg.taskDefaults(),
		SubmitRate:   r.cfg.SubmitRate,
		SubmitBurst:  r.cfg.SubmitBurst,
		Options:      r.cfg.pacedOptions(),
	}
}

// entering lets sessions of workers be refused before anything is made for them.
func entering(sessions *session.Service) func(context.Context, string) (context.Context, error) {
	return func(ctx context.Context, method string) (context.Context, error) {
		if method != dtaskv1.WorkerService_Sessions_FullMethodName {
			return ctx, nil
		}
		return sessions.Enter(ctx)
	}
}

// pacedOptions slows the pings of idle connections down with all else.
func (c *Config) pacedOptions() []grpc.ServerOption {
	if c.TimeScale <= 1 {
		return nil
	}
	every := c.TimeScale.Scale(10 * time.Second)
	return []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{Time: every, Timeout: every, MaxConnectionIdle: c.TimeScale.Scale(5 * time.Minute)})}
}

// membershipConfig is what package membership sees of this replica.
func (r *replica) membershipConfig() membership.Config {
	digest := raftnode.PeersDigest(r.cfg.servers())
	return membership.Config{
		ServerID: r.id, Machine: r.machine, Peers: r.peers, Logger: r.log, Confirm: r.api.Confirm,
		Node: func() membership.Node {
			if n := r.node.Load(); n != nil {
				return n
			}
			return nil
		},
		Recorder: func() membership.Recorder {
			if s := r.term.Load(); s != nil {
				return s
			}
			return nil
		},
		Self: func() membership.Self {
			id := r.identity.Get()
			return membership.Self{
				Instance: id.Instance, ClusterID: id.ClusterID, Empty: !r.stored && r.node.Load() == nil, Quarantined: len(r.aside) > 0,
				PeersDigest: digest, Version: r.cfg.Version, HTTPAddress: r.http, WallMS: r.cfg.Wall().UnixMilli(),
			}
		},
	}
}

// membershipKinds are the kinds of membership's errors in package api.
var membershipKinds = map[membership.Kind]api.Kind{
	membership.NotLeader: api.KindNotLeader, membership.Busy: api.KindBusy, membership.NotFound: api.KindNotFound,
	membership.Conflict: api.KindEnded, membership.Invalid: api.KindInvalid, membership.Refused: api.KindRefused,
}

// classify returns what the errors of the other services mean to a caller; nil for
// unknown ones.
func classify(err error) *api.Error {
	if m, ok := errors.AsType[*membership.Error](err); ok {
		return &api.Error{Kind: membershipKinds[m.Kind], Message: m.Message, RetryAfter: m.RetryAfter}
	}
	kind := api.Kind(0)
	switch {
	case errors.Is(err, session.ErrForeignCluster):
		kind = api.KindRefused
	case errors.Is(err, session.ErrNoHello), errors.Is(err, columns.ErrMalformed):
		kind = api.KindInvalid
	case errors.Is(err, session.ErrLogsUnavailable), errors.Is(err, session.ErrWorkerUnavailable):
		kind = api.KindNotFound
	default:
		return nil
	}
	return &api.Error{Kind: kind, Message: err.Error()}
}

// comparer compares this replica's digests with the others'.
func (r *replica) comparer() *membership.Comparer {
	return membership.NewComparer(membership.ComparerConfig{
		ServerID: r.id, Marks: r.machine.Marks, Members: r.membership.Members, Fetch: r.peers.Digests, Logger: r.log, Interval: r.cfg.TimeScale.Scale(2 * time.Second),
		Alarm: func(message string) {
			r.membership.SetAlarm(message)
			r.disputed.Store(message != "")
			if s := r.term.Load(); s != nil {
				s.StopAssigning(message != "")
			}
		},
	})
}
