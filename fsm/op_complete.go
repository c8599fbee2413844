package fsm

import "encoding/binary"

// CompleteItem ends a task as completed.
type CompleteItem struct {
	HeldAttempt
	DurationMS   uint32 // from start to end by the worker's clock
	Result       []byte // ≤ 4 KiB
	OutputSize   int64  // bytes
	OutputSHA256 []byte // 32 bytes; empty if there is no output
}

// Complete accepts completions.
type Complete = List[CompleteItem, completeOp]

type completeOp struct{}

func (completeOp) kind() opKind { return 10 }

// The flags of a completion name the optional fields that follow.
const (
	hasResult = 1 << iota
	hasOutput
	completeFlags
)

func (completeOp) fields(c *coder, it *CompleteItem) {
	c.held(&it.HeldAttempt)
	number(c, &it.DurationMS)
	flags := byte(0)
	if len(it.Result) > 0 {
		flags |= hasResult
	}
	if len(it.OutputSHA256) > 0 {
		flags |= hasOutput
	}
	if number(c, &flags); flags >= completeFlags {
		c.fail(&UnknownError{What: "completion field"})
	}
	if flags&hasResult != 0 {
		c.bytes(&it.Result)
	}
	if flags&hasOutput != 0 {
		c.i64(&it.OutputSize)
		c.bytes(&it.OutputSHA256)
	}
}

func (completeOp) size(it *CompleteItem) int { return len(it.Result) + len(it.OutputSHA256) + 16 }

// apply completes a task. Its dependents become ready, or are skipped.
// Rejects: as held; AlreadyAccepted for a second copy; Malformed if the
// result is too long or the digest has an invalid length.
func (completeOp) apply(s *State, it CompleteItem, fx *Effects) Reason {
	j, reason := s.held(it.HeldAttempt)
	if reason != Accepted {
		return reason
	}
	if len(it.Result) > maxResult || len(it.OutputSHA256) != 0 && len(it.OutputSHA256) != sha256Len {
		return Malformed
	}
	r := s.move(j, it.Index, Completed)
	r.ended, r.started = s.now, s.now-int64(it.DurationMS)
	result := uint32(0)
	if len(it.Result) > 0 || len(it.OutputSHA256) > 0 {
		head := resultHead(it)
		result = j.notes.add(s.own, noteResult, head, it.OutputSHA256, it.Result)
		s.mixBytes(head)
		s.mixBytes(it.Result)
		s.mixBytes(it.OutputSHA256)
	}
	r.note = s.recoveredNote(j, it.Index, result)
	s.mixRecord(r)
	s.taskCompleted(j, it.Index, fx)
	s.settle(j, fx)
	return Accepted
}

// resultHead is the front of a result note: size of the output and length of
// its digest. Without a digest there is no output, and the log does not carry
// a size either.
func resultHead(it CompleteItem) []byte {
	size := it.OutputSize
	if len(it.OutputSHA256) == 0 {
		size = 0
	}
	head := binary.AppendVarint(make([]byte, 0, binary.MaxVarintLen64+1), size)
	return append(head, byte(len(it.OutputSHA256))) //nolint:gosec // checked: 0 or 32
}
