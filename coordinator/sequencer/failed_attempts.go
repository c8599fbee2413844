package sequencer

import (
	"maps"
	"sync"

	"github.com/dtask/dtask/scheduler/backoff"
)

// OtherTypes stands for all task types that are not counted on their own. It is not a
// valid task type.
const OtherTypes = "(others)"

// maxFailedTypes bounds the types with counts of their own, since users choose the types.
const maxFailedTypes = 50

// FailedAttempts counts failed attempts by task type and reason. The zero value is ready
// to use. Safe for concurrent use.
type FailedAttempts struct {
	mu    sync.Mutex // guards the following fields
	n     map[FailedKind]uint64
	types map[string]bool
}

// FailedKind is a type of tasks and a reason of failures: exit, signal, timeout, start,
// oom or error.
type FailedKind struct{ Type, Reason string }

func (f *FailedAttempts) add(taskType string, reason backoff.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n, f.types = make(map[FailedKind]uint64), make(map[string]bool)
	}
	if !f.types[taskType] {
		if len(f.types) >= maxFailedTypes {
			taskType = OtherTypes
		} else {
			f.types[taskType] = true
		}
	}
	f.n[FailedKind{taskType, reason.String()}]++
}

// Counts returns the counts, at least that of errors of OtherTypes.
func (f *FailedAttempts) Counts() map[FailedKind]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[FailedKind]uint64{{OtherTypes, backoff.Error.String()}: 0}
	maps.Copy(counts, f.n)
	return counts
}
