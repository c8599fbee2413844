package api

import (
	"google.golang.org/grpc"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// History implements AdminService.
func (a *admin) History(r *dtaskv1.HistoryRequest, stream grpc.ServerStreamingServer[dtaskv1.HistoryResponse]) error {
	if a.cfg.History == nil {
		return &Error{Kind: KindBusy, RetryAfter: historyRetryDelay, Message: "this replica has no history yet"}
	}
	ctx, cancel := a.untilStopping(stream.Context())
	defer cancel()
	resp, size := &dtaskv1.HistoryResponse{}, 0
	send := func() error {
		err := stream.Send(resp)
		resp, size = &dtaskv1.HistoryResponse{}, 0
		return err
	}
	after := history.Position{Index: r.GetAfterIndex(), Job: fsm.JobID(r.GetAfterJob())}
	complete, err := a.cfg.History.Serve(ctx, after, r.GetToIndex(), func(chunk history.Chunk, complete bool) error {
		resp.Complete = complete
		resp.Chunks = append(resp.Chunks, &dtaskv1.HistoryChunk{
			Index: chunk.Index, Job: uint64(chunk.Job), Number: chunk.Number, Total: chunk.Total, Data: chunk.Data,
		})
		if size += len(chunk.Data); size < maxPageBytes {
			return nil
		}
		return send()
	})
	if err != nil {
		return err
	}
	if resp.Complete = complete; len(resp.GetChunks()) > 0 {
		if err := send(); err != nil {
			return err
		}
	}
	resp.Complete = complete
	return send()
}
