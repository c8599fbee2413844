package api

import (
	"errors"
	"sync/atomic"

	"github.com/dtask/dtask/coordinator/sequencer"
)

// busyCause is the limit that rejected a submission; a label of metrics.
type busyCause uint8

const (
	limitOther   busyCause = iota // such as a stalled client
	limitRate                     // jobs per second of one owner or queue
	limitUploads                  // memory of submissions in progress
	limitInbox                    // pending requests
	limitMemory                   // tasks and keys in memory
	limitDisk                     // free space on the leader's disk
	limitCount
)

// String returns the label.
func (l busyCause) String() string {
	return [limitCount]string{"other", "rate", "uploads", "inbox", "memory", "disk"}[l]
}

// causesOfSequencer are the limits that the sequencer enforces.
var causesOfSequencer = map[sequencer.Limit]busyCause{
	sequencer.LimitInbox: limitInbox, sequencer.LimitMemory: limitMemory, sequencer.LimitDisk: limitDisk, sequencer.LimitQueueRate: limitRate,
}

// busyCounts counts rejected submissions by limit.
type busyCounts [limitCount]atomic.Uint64

// count counts err if a limit caused it.
func (r *busyCounts) count(err error) {
	if own, ok := errors.AsType[*Error](err); ok && own.Kind == KindBusy {
		r[own.limit].Add(1)
	} else if busy, ok := errors.AsType[*sequencer.BusyError](err); ok {
		r[causesOfSequencer[busy.Limit]].Add(1)
	}
}

// Refused returns the number of submissions that this replica rejected as
// leader, by limit: rate, uploads, inbox, memory, disk, other. The map has all
// of them and belongs to the caller.
func (s *Server) Refused() map[string]uint64 {
	counts := make(map[string]uint64, limitCount)
	for l := range limitCount {
		counts[l.String()] = s.refused[l].Load()
	}
	return counts
}
