package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// staleHelp explains --stale in the help of a command.
const staleHelp = `With --stale, any coordinator answers from its own state, even without a leader.
Recent changes may be missing; standard error names the coordinator, its log index and
the time since it last heard from a leader.`

// A staleRead is --stale and the freshness of what it read.
type staleRead struct {
	stale bool

	mu     sync.Mutex         // guards oldest
	oldest *dtaskv1.Freshness // of all responses
}

// bindStale adds --stale to a command that reads.
func (s *staleRead) bindStale(fl *pflag.FlagSet) {
	fl.BoolVar(&s.stale, "stale", false, "read from any coordinator, even without a leader")
}

// readOptions returns the options of a read.
func (s *staleRead) readOptions() client.ReadOptions {
	return client.ReadOptions{Stale: s.stale, Fresh: s.noteFresh}
}

// noteFresh remembers the oldest state that a response came from.
func (s *staleRead) noteFresh(f *dtaskv1.Freshness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.oldest == nil || f.GetAppliedIndex() < s.oldest.GetAppliedIndex() {
		s.oldest = f
	}
}

// age reports how fresh a stale read was; empty if there was none.
func (s *staleRead) age() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stale || s.oldest == nil {
		return ""
	}
	text := fmt.Sprintf("stale read from %s: log index %d", show.Clean(s.oldest.GetReplica()), s.oldest.GetAppliedIndex())
	if lag := time.Duration(s.oldest.GetLagMs()) * time.Millisecond; lag > 0 {
		text += ", " + show.Duration(lag) + " since its last contact with a leader"
	}
	return text
}
