package transport

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// ErrSnapshotStored is returned by Config.Check for a snapshot that the replica need not
// install, because it has all that the snapshot contains. The answer is a success.
var ErrSnapshotStored = errors.New("the snapshot is stored")

// refuse answers a request with an error, or for ErrSnapshotStored with a success. The connection stays usable: its request has
// been read.
func refuse(rpc raft.RPC, err error) {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader) // an error there ends the connection as well
	}
	var response any
	switch args := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		response = &raft.AppendEntriesResponse{}
	case *raft.InstallSnapshotRequest:
		stored := errors.Is(err, ErrSnapshotStored)
		response = &raft.InstallSnapshotResponse{Term: args.Term, Success: stored}
		if stored {
			err = nil
		}
	case *raft.RequestVoteRequest:
		response = &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		response = &raft.RequestPreVoteResponse{}
	default:
		response = &raft.TimeoutNowResponse{}
	}
	rpc.Respond(response, err)
}
