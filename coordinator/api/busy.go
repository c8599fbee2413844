package api

import (
	"errors"
	"sync/atomic"

	"github.com/dtask/dtask/coordinator/sequencer"
)

// limit is which limit a submission met; a label of metrics.
type busyCause uint8

const (
	limitOther   busyCause = iota // such as a client that fell silent
	limitRate                     // jobs per second of one owner
	limitUploads                  // memory of submissions that are being received
	limitInbox                    // requests that wait
	limitMemory                   // tasks and keys that are held
	limitDisk                     // room on the leader's disk
	limitCount
)

// String gives the label.
func (l busyCause) String() string {
	return [limitCount]string{"other", "rate", "uploads", "inbox", "memory", "disk"}[l]
}

// bySequencer are the limits that the sequencer knows.
var causesOfSequencer = map[sequencer.Limit]busyCause{
	sequencer.LimitInbox: limitInbox, sequencer.LimitMemory: limitMemory, sequencer.LimitDisk: limitDisk,
}

// refusals counts submissions that were refused because something is full.
type busyCounts [limitCount]atomic.Uint64

// count counts err if it is such a refusal.
func (r *busyCounts) count(err error) {
	if own, ok := errors.AsType[*Error](err); ok && own.Kind == KindBusy {
		r[own.limit].Add(1)
	} else if busy, ok := errors.AsType[*sequencer.BusyError](err); ok {
		r[causesOfSequencer[busy.Limit]].Add(1)
	}
}

// Refused counts the submissions that this replica refused as leader because
// something was full, by what it was: rate, uploads, inbox, memory, disk, other.
// All of them are in the map, which is the caller's.
func (s *Server) Refused() map[string]uint64 {
	counts := make(map[string]uint64, limitCount)
	for l := range limitCount {
		counts[l.String()] = s.refused[l].Load()
	}
	return counts
}
