package coordinator

import (
	"context"
	"fmt"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

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
	stream, err := dtaskv1.NewAdminServiceClient(conn).History(ctx, &dtaskv1.HistoryRequest{AfterIndex: after.Index, AfterJob: uint64(after.Job), ToIndex: to})
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
			chunk := history.Chunk{Position: history.Position{Index: x.GetIndex(), Job: fsm.JobID(x.GetJob())}, Number: x.GetNumber(), Total: x.GetTotal(), Data: x.GetData()}
			if err := take(chunk, resp.GetComplete()); err != nil {
				return false, err
			}
		}
	}
}
