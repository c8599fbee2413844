package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// cluster is ClusterService.
type cluster struct {
	dtaskv1.UnimplementedClusterServiceServer
	*Server
}

// stateStarting is what Identify says before Raft runs.
const stateStarting = "starting"

// Identify implements ClusterService. It needs no Raft and waits for nothing.
func (c *cluster) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return c.identify(), nil
}

func (s *Server) identify() *dtaskv1.IdentifyResponse {
	id := s.cfg.Identity()
	resp := &dtaskv1.IdentifyResponse{
		ServerId: s.cfg.ServerID, Instance: id.Instance, ClusterId: id.ClusterID, Empty: id.Empty, PeersDigest: id.PeersDigest,
		Version: id.Version, HttpAddress: id.HTTPAddress, State: stateStarting, Applied: s.cfg.Machine.Index(),
	}
	if raft := s.cfg.Raft(); raft != nil {
		resp.Term, resp.State, resp.LastIndex = raft.Term(), raft.State(), raft.LastIndex()
		resp.LeaderId, _ = raft.Leader()
	}
	return resp
}

// Admit implements ClusterService. It is idempotent by nature.
func (c *cluster) Admit(ctx context.Context, r *dtaskv1.AdmitRequest) (*dtaskv1.AdmitResponse, error) {
	if !isName(r.GetServerId()) || len(r.GetInstance()) != 32 {
		return nil, invalid("server_id, instance: send an id of 1 to %d characters and an instance of 32 hexadecimal digits", maxServerID)
	}
	leader := c.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	if err := c.confirm(ctx); err != nil {
		return nil, err
	}
	var clusterID, instance string
	var known bool
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		clusterID = st.ClusterID()
		instance, known = st.Instance(r.GetServerId())
	})
	switch {
	case r.GetClusterId() != "" && r.GetClusterId() != clusterID:
		return nil, refused("server %s belongs to cluster %s, and this is cluster %s", r.GetServerId(), r.GetClusterId(), clusterID)
	case known && instance != r.GetInstance():
		return nil, otherInstance(r.GetServerId())
	case !known:
		if err := c.vouch(ctx, r); err != nil {
			return nil, err
		}
		err := leader.Admit(ctx, r.GetServerId(), r.GetInstance())
		if _, rejected := errors.AsType[*sequencer.RejectedError](err); rejected {
			return nil, otherInstance(r.GetServerId()) // another was first
		}
		if err != nil {
			return nil, fmt.Errorf("admitting server %s: %w", r.GetServerId(), err)
		}
	}
	return &dtaskv1.AdmitResponse{ClusterId: clusterID}, nil
}

// vouch asks for a member whose instance is not recorded yet at the address that
// the configuration has for it: somebody else may have taken its id.
func (c *cluster) vouch(ctx context.Context, r *dtaskv1.AdmitRequest) error {
	members := c.cfg.Members()
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == r.GetServerId() })
	if i < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m := members[i]
	id, err := c.cfg.Peers.Identify(ctx, m.Address)
	switch {
	case err != nil:
		return &Error{Kind: KindBusy, Message: fmt.Sprintf("server %s does not answer at %s, where it should be: it is asked again", m.ID, m.Address)}
	case id.GetServerId() != m.ID || id.GetInstance() != r.GetInstance():
		return refused("server id %s belongs to what runs at %s, which has another data folder; start this one under an id of its own", m.ID, m.Address)
	}
	return nil
}

// maxServerID bounds a server id, in bytes.
const maxServerID = 128

func isName(id string) bool { return id != "" && len(id) <= maxServerID }

func otherInstance(serverID string) error {
	return refused("server id %s is known to the cluster with another data folder: its own was lost or replaced. "+
		"Start it with its old folder, or with a new server id", serverID)
}

// Digests implements ClusterService.
func (c *cluster) Digests(_ context.Context, r *dtaskv1.DigestsRequest) (*dtaskv1.DigestsResponse, error) {
	resp := &dtaskv1.DigestsResponse{ServerId: c.cfg.ServerID}
	for _, m := range c.cfg.Machine.Marks(r.GetFrom()) {
		resp.Digests = append(resp.Digests, &dtaskv1.Digest{Index: m.Index, Value: m.Digest})
	}
	return resp, nil
}

// Stats implements ClusterService.
func (c *cluster) Stats(context.Context, *dtaskv1.StatsRequest) (*dtaskv1.StatsResponse, error) {
	totals, process := c.cfg.Totals(), c.cfg.Process()
	return &dtaskv1.StatsResponse{
		Entries: totals.Entries, Operations: totals.Operations, Bytes: totals.Bytes,
		Assignments: totals.Assignments, Completions: totals.Completions,
		Syncs: process.Syncs, LeaderChanges: process.LeaderChanges,
		AppliedIndex: c.cfg.Machine.Index(), HeapBytes: liveHeap(), RssBytes: residentMemory(),
	}, nil
}
