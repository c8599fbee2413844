package fsm

import "math"

// What the history says of attempts that did not end themselves.
const (
	workerLost  = "worker lost while it ran"
	fateUnknown = "worker lost, fate of the attempt unknown"
)

// maxHistory is how many attempts a task's history keeps: the first ones, and
// the last.
const maxHistory = 50

// Attempt is an attempt that failed or was lost.
type Attempt struct {
	Number    uint32
	Worker    WorkerID
	StartedMS int64
	EndedMS   int64
	Error     string
}

// attemptNote adds the attempt that r has just ended to its history and gives
// the note. A note of an attempt is: depth of the history, position + 1 of the
// note before, attempt, worker, begin, end, position + 1 of its text.
func (s *State) attemptNote(j *job, r *record, why string) uint32 {
	text := s.text(j, why)
	depth, before := uint64(1), uint32(0)
	if k, value := j.notes.get(r.note); k == noteAttempt {
		last := (&decoder{b: value}).attempt()
		depth, before = last.depth+1, r.note
		if depth > maxHistory {
			depth, before = maxHistory, last.before // the latest takes the place of the one before it
		}
	}
	var e encoder
	e.u64(depth)
	e.u64(uint64(before))
	e.u64(uint64(r.attempt))
	e.u64(uint64(r.worker))
	e.i64(r.started)
	e.i64(s.now)
	e.u64(uint64(text))
	s.mixBytes(e.b)
	return j.notes.add(s.own, noteAttempt, e.b)
}

// attemptValue is the contents of a note of an attempt.
type attemptValue struct {
	depth        uint64
	before, text uint32
	Attempt
}

func (d *decoder) attempt() attemptValue {
	v := attemptValue{depth: d.u64(), before: d.u32()}
	v.Number = d.u32()
	v.Worker = WorkerID(d.u32())
	v.StartedMS = d.i64()
	v.EndedMS = d.i64()
	v.text = d.u32()
	if d.err == nil && len(d.b) > 0 {
		d.fail(errTruncated)
	}
	return v
}

// History gives the attempts of a task that failed or were lost, oldest first:
// at most 50, the last one among them. A task that completed has none.
func (s *State) History(t TaskRef) []Attempt {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	var list []Attempt
	for note := j.records.at(t.Index).note; note != 0 && len(list) <= maxHistory; {
		k, value := j.notes.get(note)
		if k != noteAttempt {
			break
		}
		v := (&decoder{b: value}).attempt()
		_, text := j.notes.get(v.text)
		v.Error = string(text)
		list = append(list, v.Attempt)
		note = v.before
	}
	for i, k := 0, len(list)-1; i < k; i, k = i+1, k-1 {
		list[i], list[k] = list[k], list[i]
	}
	return list
}

// links checks that notes of attempts point back to notes of the right kind, so
// that reading a history ends and stays within the stream.
func (n *notes) links() error {
	kinds := make(map[uint32]noteKind)
	for _, p := range n.pieces {
		for rest := p.b; len(rest) > 0; {
			at := p.at + uint32(len(p.b)-len(rest)) + 1 //nolint:gosec // within the stream
			value, after := lengthPrefixed(rest[1:])
			kind := noteKind(rest[0])
			if kind == noteAttempt {
				v := (&decoder{b: value}).attempt()
				if v.before != 0 && kinds[v.before] != noteAttempt || v.text != 0 && kinds[v.text] != noteError || v.depth > math.MaxInt32 {
					return errBadLink
				}
			}
			if kind != noteResult {
				kinds[at] = kind
			}
			rest = after
		}
	}
	return nil
}
