package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// historyName is the history's file in the data directory.
const historyName = "history.db"

// openHistory opens the history. A damaged file doesn't keep the replica from
// starting.
func (r *replica) openHistory() (err error) {
	r.history, err = history.Open(history.Config{
		Path: filepath.Join(r.cfg.DataDir, historyName), Logger: r.log,
		MaxJobs: r.cfg.HistoryJobs, MaxBytes: r.cfg.HistoryBytes, Sources: r.historySources, Summarize: api.Summarize,
		ImportAfter: r.opened,
	})
	if err == nil {
		r.machine.ArchiveTo(r.history)
	}
	return err
}

// historyImport describes the import of the history of a restored backup; nil without one.
func (r *replica) historyImport() *dtaskv1.HistoryImport {
	if jobs, left := r.history.ImportProgress(); jobs > 0 {
		return &dtaskv1.HistoryImport{Jobs: jobs, Left: left}
	}
	return nil
}

// runHistory runs the history until the returned function is called. It outlives Raft,
// which writes a last snapshot and may wait for the history to accept its jobs.
func (r *replica) runHistory(ctx context.Context) (end func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1) // size 1: end may never be called
	go func() { done <- r.history.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// historySources returns the other members in the order of their ids, the leader last
// because it has the most work. all is false until the configuration is known, which a
// leader confirms.
func (r *replica) historySources(context.Context) (sources []history.Source, all bool) {
	members, leader := r.servers(), ""
	if node := r.node.Load(); node != nil {
		leader, _ = node.Leader()
	}
	last := func(s raftnode.Server) int {
		if s.ID == leader {
			return 1
		}
		return 0
	}
	slices.SortFunc(members, func(a, b raftnode.Server) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.ID, b.ID))
	})
	for _, m := range members {
		if m.ID != r.dir.serverID {
			sources = append(sources, historySource{r.peers, m.Address})
		}
	}
	return sources, len(members) > 0 && leader != ""
}

// historySource is the history of the replica at an address.
type historySource struct {
	peers   *membership.Peers
	address string
}

// Fetch implements history.Source.
func (s historySource) Fetch(ctx context.Context, after history.Position, to uint64, take func(history.Chunk, bool) error) (complete bool, err error) {
	conn, err := s.peers.Conn(s.address)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := dtaskv1.NewAdminServiceClient(conn).History(ctx,
		&dtaskv1.HistoryRequest{AfterIndex: after.Index, AfterJob: uint64(after.Job), ToIndex: to})
	if err != nil {
		return false, err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return false, fmt.Errorf("fetching history from %s: %w", s.address, err)
		}
		if len(resp.GetChunks()) == 0 {
			return resp.GetComplete(), nil
		}
		for _, x := range resp.GetChunks() {
			chunk := history.Chunk{
				Position: history.Position{Index: x.GetIndex(), Job: fsm.JobID(x.GetJob())},
				Number:   x.GetNumber(), Total: x.GetTotal(), Data: x.GetData(),
			}
			if err := take(chunk, resp.GetComplete()); err != nil {
				return false, err
			}
		}
	}
}
