package coordinator

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// replicated adapts the state machine to raftnode.
type replicated struct {
	machine *fsm.Machine
	history *history.History
	above   *atomic.Pointer[fsm.LevelError] // set if a snapshot is above the build's feature level
	work    *work
}

func (r replicated) Apply(index, _ uint64, data []byte) any {
	r.work.begin()
	defer r.work.end()
	result := r.machine.Apply(index, data)
	var halt *fsm.HaltError
	if err, ok := result.(error); ok && errors.As(err, &halt) {
		return raftnode.Halt{Err: halt.Err}
	}
	return result
}

func (r replicated) Snapshot() (raftnode.Snapshot, error) {
	return snapshot{r.machine.Snapshot(), r.history}, nil
}

// historySyncTimeout is how long a snapshot waits for the history; then it is repeated
// later.
const historySyncTimeout = time.Minute

// snapshot is stored only after the jobs that left the state before it are on disk in
// the history: the log entries that have them may be deleted then.
type snapshot struct {
	*fsm.Snapshot

	history *history.History
}

// Persist implements raftnode.Snapshot.
func (s snapshot) Persist(w io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), historySyncTimeout)
	defer cancel()
	if err := s.history.Sync(ctx, s.Index()); err != nil {
		return err
	}
	return s.Snapshot.Persist(w)
}

func (r replicated) Restore(from io.Reader) (take func(), err error) {
	r.work.begin()
	defer r.work.end()
	take, err = r.machine.PrepareRestore(r.work.reader(from))
	if level, above := errors.AsType[*fsm.LevelError](err); above {
		r.above.Store(level)
	}
	return take, err
}

// proposer adapts the node to the sequencer.
type proposer struct{ node *raftnode.Node }

func (p proposer) Propose(data []byte) sequencer.Proposal { return p.node.Propose(data) }

// neverProposed reports whether an error means that an entry was not proposed.
func neverProposed(err error) bool {
	var notLeader *raftnode.NotLeaderError
	return !errors.Is(err, raftnode.ErrOutcomeUnknown) &&
		(errors.As(err, &notLeader) || errors.Is(err, raftnode.ErrNoLeader) ||
			errors.Is(err, raftnode.ErrBusy) || errors.Is(err, raftnode.ErrTransferring))
}
