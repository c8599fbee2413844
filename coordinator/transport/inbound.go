package transport

import "github.com/hashicorp/raft"

// Consumer implements raft.Transport. It returns the requests of the other replicas as
// raft may process them.
func (t *Transport) Consumer() <-chan raft.RPC {
	if t.requests == nil {
		return t.NetworkTransport.Consumer()
	}
	return t.requests
}

// forward passes requests to raft until the transport is closed. A request that raft
// has not taken then ends with its connection.
func (t *Transport) forward() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if args, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
				limitCommit(args) // before the check, which may change the entry that it follows
			}
			if t.check != nil {
				if err := t.check(rpc.Command); err != nil {
					refuse(rpc, err)
					continue
				}
			}
			select {
			case t.requests <- rpc:
			case <-t.closed:
				return
			}
		case <-t.closed:
			return
		}
	}
}

// limitCommit limits the commit index of a request to its last entry. Raft accepts a
// commit index up to the end of its own log, but the request shows only that the log
// equals the leader's up to the request's last entry. A replica that was away may have
// entries after that of an earlier leader, which differ from the committed ones, and
// would apply them. Raft: "commitIndex = min(leaderCommit, index of last new entry)"
// (Ongaro and Ousterhout, figure 2).
//
// The limit delays no commit: a follower that has nothing but the leader's entries ends
// where the last request that it accepted ends, and the next one has more.
func limitCommit(args *raft.AppendEntriesRequest) {
	args.LeaderCommitIndex = min(args.LeaderCommitIndex, lastMatched(args))
}

// lastMatched returns the last entry that a replica has in common with the leader once
// it has accepted a request.
func lastMatched(args *raft.AppendEntriesRequest) uint64 {
	if n := len(args.Entries); n > 0 {
		return args.Entries[n-1].Index
	}
	return args.PrevLogEntry
}
