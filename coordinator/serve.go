package coordinator

import (
	"errors"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/session"
)

// apiConfig is what the gRPC services see of this replica.
func (r *replica) apiConfig(sessions *session.Service) api.Config {
	digest := raftnode.PeersDigest(r.cfg.servers())
	return api.Config{
		ServerID: r.cfg.ID, Machine: r.machine, Peers: r.peers, Logger: r.log, Logs: sessions,
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
		Members: r.members,
		Identity: func() api.Identity {
			id := r.identity.Get()
			return api.Identity{
				Instance: id.Instance, ClusterID: id.ClusterID, Empty: !r.stored && r.node.Load() == nil,
				PeersDigest: digest, Version: r.cfg.Version, HTTPAddress: r.http,
			}
		},
		Totals: r.totals.Stats,
		Process: func() api.Process {
			p := api.Process{LeaderChanges: r.leaderChanges.Load()}
			if n := r.node.Load(); n != nil {
				p.Syncs = n.Stats().Syncs
			}
			return p
		},
		Classify:     classify,
		TaskDefaults: r.cfg.taskDefaults(),
	}
}

// classify says what the errors of package session mean to a caller.
func classify(err error) api.Kind {
	switch {
	case errors.Is(err, session.ErrForeignCluster):
		return api.KindRefused
	case errors.Is(err, session.ErrNoHello):
		return api.KindInvalid
	case errors.Is(err, session.ErrLogsGone), errors.Is(err, session.ErrWorkerAway):
		return api.KindNotFound
	}
	return 0
}

// comparer compares this replica's digests with the others'.
func (r *replica) comparer() *api.Comparer {
	return api.NewComparer(api.ComparerConfig{
		ServerID: r.cfg.ID, Marks: r.machine.Marks, Members: r.members, Fetch: r.peers.Digests, Logger: r.log,
		Alarm: func(message string) {
			r.api.SetAlarm(message)
			r.disputed.Store(message != "")
			if s := r.term.Load(); s != nil {
				s.StopAssigning(message != "")
			}
		},
	})
}
