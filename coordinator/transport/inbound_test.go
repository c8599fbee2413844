package transport

import (
	"testing"

	"github.com/hashicorp/raft"
)

func TestTheCommitIndexOfARequestEndsWithItsEntries(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ prev, entries, commit, want uint64 }{
		"of a follower far behind":           {prev: 10, entries: 64, commit: 500, want: 74},
		"of a follower that is up to date":   {prev: 10, entries: 2, commit: 9, want: 9},
		"with everything committed":          {prev: 10, entries: 0, commit: 10, want: 10},
		"without entries":                    {prev: 10, entries: 0, commit: 12, want: 10},
		"with all entries from the first on": {prev: 0, entries: 3, commit: 3, want: 3},
		"of a heartbeat":                     {},
	} {
		q := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: x.prev, LeaderCommitIndex: x.commit}
		for n := range x.entries {
			q.Entries = append(q.Entries, &raft.Log{Index: x.prev + n + 1})
		}
		if limitCommit(q); q.LeaderCommitIndex != x.want {
			t.Errorf("%s: the commit index is %d, want %d", name, q.LeaderCommitIndex, x.want)
		}
	}
}
