package transport

import (
	"io"

	"github.com/hashicorp/raft"
)

// refuse answers a request with an error. The connection stays usable: its request has
// been read.
func refuse(rpc raft.RPC, err error) {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader) // an error there ends the connection as well
	}
	var response any
	switch rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		response = &raft.AppendEntriesResponse{}
	case *raft.InstallSnapshotRequest:
		response = &raft.InstallSnapshotResponse{}
	case *raft.RequestVoteRequest:
		response = &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		response = &raft.RequestPreVoteResponse{}
	default:
		response = &raft.TimeoutNowResponse{}
	}
	rpc.Respond(response, err)
}
