package fsm

import (
	"errors"
	"slices"
)

// Errors of attempts whose outcome was not reported.
const (
	workerLost     = "worker marked down while the attempt ran"
	outcomeUnknown = "worker marked down, outcome of the attempt unknown"
)

// maxHistory is the number of attempts in a task's history: the first ones
// and the last.
const maxHistory = 50

// Attempt is an attempt that failed or was lost.
type Attempt struct {
	Number    uint32
	Worker    WorkerID
	StartedMS int64
	EndedMS   int64
	Error     string
}

var errBadLink = errors.New("invalid link between notes")

// lastAttemptNote returns the note of the last attempt in a task's history; 0
// if it is empty.
func (j *job) lastAttemptNote(i uint32) uint32 {
	note := j.records.at(i).note
	switch k, value := j.notes.get(note); k {
	case noteAttempt:
		return note
	case noteEnd, noteRecovered:
		return (&decoder{b: value}).end().before
	case noteResult, noteReused, noteError:
	}
	return 0
}

// recoveredNote returns the note of a task that completes with a result, 0 for none,
// and keeps its history. Most tasks have none and cost nothing more.
func (s *State) recoveredNote(j *job, i, result uint32) uint32 {
	past := j.lastAttemptNote(i)
	if past == 0 {
		return result
	}
	return s.linkNote(j, noteRecovered, past, result)
}

// resultNote returns the note of a completed task's result, reused or not; 0 for none.
func (j *job) resultNote(i uint32) (noteKind, []byte) {
	kind, value := j.notes.get(j.records.at(i).note)
	if kind == noteRecovered {
		return j.notes.get((&decoder{b: value}).end().text)
	}
	return kind, value
}

// linkNote adds a note of two links: position + 1 of the last attempt, and of what the
// task ended with.
func (s *State) linkNote(j *job, kind noteKind, past, with uint32) uint32 {
	var e encoder
	e.u64(uint64(past))
	e.u64(uint64(with))
	s.mixBytes(e.b)
	return j.notes.add(s.own, kind, e.b)
}

// endReason returns the text of a task's note.
func (j *job) endReason(i uint32) string {
	text := j.records.at(i).note
	switch k, value := j.notes.get(text); k {
	case noteAttempt:
		text = (&decoder{b: value}).attempt().text
	case noteEnd:
		text = (&decoder{b: value}).end().text
	case noteResult, noteReused, noteRecovered:
		return ""
	case noteError:
	}
	_, b := j.notes.get(text)
	return string(b)
}

// endNote stores why a task ended other than with an attempt, and keeps its
// history.
func (s *State) endNote(j *job, i uint32, why string) uint32 {
	text, past := s.textNote(j, why), j.lastAttemptNote(i)
	if past == 0 {
		return text
	}
	return s.linkNote(j, noteEnd, past, text)
}

// endValue is the contents of a note of two links; text is the result of a task that
// completed.
type endValue struct{ before, text uint32 }

func (d *decoder) end() endValue {
	v := endValue{before: d.u32(), text: d.u32()}
	if d.err == nil && len(d.b) > 0 {
		d.fail(errTruncated)
	}
	return v
}

// attemptNote adds an attempt that ends now to a task's history and returns
// the note. Its contents are: depth of the history, position + 1 of the
// previous note, attempt, worker, start, end, position + 1 of the text.
func (s *State) attemptNote(j *job, i uint32, why string) uint32 {
	r, text := j.records.at(i), s.textNote(j, why)
	depth, before := uint64(1), j.lastAttemptNote(i)
	if before != 0 {
		_, value := j.notes.get(before)
		last := (&decoder{b: value}).attempt()
		depth = last.depth + 1
		if depth > maxHistory {
			depth, before = maxHistory, last.before // the latest replaces the previous one
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

// attemptValue is the contents of an attempt note.
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

// History returns the failed and lost attempts of a task, oldest first: at
// most 50, including the last one. A completed task has those before its success.
func (s *State) History(t TaskRef) []Attempt {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return nil
	}
	var list []Attempt
	for note := j.lastAttemptNote(t.Index); note != 0; {
		_, value := j.notes.get(note)
		v := (&decoder{b: value}).attempt()
		_, text := j.notes.get(v.text)
		v.Error = string(text)
		list = append(list, v.Attempt)
		note = v.before
	}
	slices.Reverse(list)
	return list
}

// read is get for positions that may be wrong, as in a damaged snapshot.
func (n *notes) read(note uint32) (noteKind, []byte, error) {
	d := decoder{b: n.from(note)}
	if err := d.note(); err != nil {
		return 0, nil, err
	}
	kind, value := n.get(note)
	return kind, value, nil
}

// check follows a record's note to everything that Result and History read.
// Links must lead back to notes of the right kind, and a history must have
// its stated length.
func (n *notes) check(note uint32) error {
	kind, value, err := n.read(note)
	if err != nil {
		return err
	}
	switch kind {
	case noteAttempt:
		return n.checkHistory(note, value)
	case noteEnd:
		v := (&decoder{b: value}).end()
		if err := n.checkText(note, v.text); err != nil {
			return err
		}
		return n.checkLastAttempt(note, v.before)
	case noteRecovered:
		v := (&decoder{b: value}).end()
		if err := n.checkResult(note, v.text); err != nil {
			return err
		}
		return n.checkLastAttempt(note, v.before)
	case noteResult, noteReused, noteError:
	}
	return nil
}

// checkLastAttempt checks a note's link to the last attempt of a task.
func (n *notes) checkLastAttempt(note, attempt uint32) error {
	kind, value, err := n.read(attempt)
	if err != nil || kind != noteAttempt || attempt >= note {
		return errBadLink
	}
	return n.checkHistory(attempt, value)
}

// checkResult checks a note's link to a result; 0 means no result.
func (n *notes) checkResult(note, result uint32) error {
	if result == 0 {
		return nil
	}
	kind, _, err := n.read(result)
	if err != nil || kind != noteResult && kind != noteReused || result >= note {
		return errBadLink
	}
	return nil
}

func (n *notes) checkHistory(note uint32, value []byte) error {
	v := (&decoder{b: value}).attempt()
	if v.depth > maxHistory {
		return errBadLink
	}
	for {
		if err := n.checkText(note, v.text); err != nil {
			return err
		}
		if (v.before == 0) != (v.depth == 1) || v.before >= note {
			return errBadLink
		}
		if v.before == 0 {
			return nil
		}
		kind, value, err := n.read(v.before)
		if err != nil || kind != noteAttempt {
			return errBadLink
		}
		before := (&decoder{b: value}).attempt()
		if before.depth+1 != v.depth {
			return errBadLink
		}
		note, v = v.before, before
	}
}

// checkText checks the position of a note's text.
func (n *notes) checkText(note, text uint32) error {
	if text == 0 {
		return nil
	}
	if kind, _, err := n.read(text); err != nil || kind != noteError || text >= note {
		return errBadLink
	}
	return nil
}
