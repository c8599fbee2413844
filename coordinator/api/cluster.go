package api

import (
	"context"
	"fmt"
	"time"

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
		ServerId: s.cfg.ServerID, Instance: id.Instance, ClusterId: id.ClusterID, Empty: id.Empty, SetAside: id.SetAside, PeersDigest: id.PeersDigest,
		Version: id.Version, HttpAddress: id.HTTPAddress, State: stateStarting, Applied: s.cfg.Machine.Index(),
		WallMs: id.WallMS,
	}
	if raft := s.cfg.Raft(); raft != nil {
		resp.Term, resp.State, resp.LastIndex = raft.Term(), raft.State(), raft.LastIndex()
		resp.LeaderId, _ = raft.Leader()
	}
	return resp
}

// vouch asks for a member whose instance is not recorded yet at the address that
// the configuration has for it: somebody else may have taken its id.
func (c *cluster) vouch(ctx context.Context, r *dtaskv1.AdmitRequest) error {
	members := c.cfg.Members()
	i := indexOf(members, r.GetServerId())
	if i < 0 {
		return &Error{Kind: KindBusy, Message: fmt.Sprintf("server %s is no member of this cluster: run dtaskctl cluster add %s HOST:PORT", r.GetServerId(), r.GetServerId())}
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
