package fsm

import "slices"

// Draft is an entry in the making. Each operation is applied to a fork of the
// state at once, so that the next is checked against all that went before, and
// is kept only if it was accepted. The fork is therefore always what the
// replicated state will be once the entry is committed. Not safe for concurrent
// use.
type EntryBuilder struct {
	s      *State
	fx     *Effects
	entry  Entry
	open   Op     // list that the next item may join; not yet in the digest
	digest uint64 // before the entry
	now    int64  // before the entry
	size   int    // about how long the entry will be, in bytes
	items  int
	kept   bool // also without operations

	completions int // for which the next list of them has room
}

// NewDraft begins an entry on s, which must be the caller's own fork. Effects
// of accepted operations are added to fx.
func NewEntryBuilder(s *State, nowMS int64, fx *Effects) *EntryBuilder {
	d := &EntryBuilder{s: s, fx: fx, entry: Entry{NowMS: nowMS, After: s.entries}, digest: s.digest, now: s.now}
	s.begin(nowMS)
	return d
}

// State is the fork with all accepted operations applied.
func (d *EntryBuilder) State() *State { return d.s }

// Size is about how long the entry will be, in bytes; never far below.
func (d *EntryBuilder) Size() int { return d.size }

// Items is the number of operations, items of lists counted one by one.
func (d *EntryBuilder) Items() int { return d.items }

// NowMS is the stamp of the entry.
func (d *EntryBuilder) NowMS() int64 { return d.entry.NowMS }

// Expect makes room for so many completions, of which fewer may come: what many report
// is one list, which would be copied again and again as it grows.
func (d *EntryBuilder) ExpectCompletions(completions int) { d.completions = completions }

// Keep makes Finish give an entry also if it has no operations: that it is
// committed shows that nobody else had changed the state that was looked at.
func (d *EntryBuilder) KeepEmpty() { d.kept = true }

// Finish ends the entry and gives it with the digest that the state must have
// after it. If nothing was accepted and it is not to be kept, ok is false and the
// fork is as it was.
func (d *EntryBuilder) Finish() (e Entry, digest uint64, ok bool) {
	d.closeList()
	if len(d.entry.Ops) == 0 && !d.kept {
		d.s.entries--
		d.s.digest, d.s.now = d.digest, d.now
		return Entry{}, d.digest, false
	}
	return d.entry, d.s.digest, true
}

// Do applies an operation. Of a list the items that are accepted are kept; the
// reason is that of the first that was not.
func (d *EntryBuilder) Do(op Op) Reason {
	switch op := op.(type) {
	case *Assign:
		return each(op.Items, d.Assign)
	case *RecordStart:
		return each(op.Items, d.RecordStart)
	case *Complete:
		return each(op.Items, d.Complete)
	case *Fail:
		return each(op.Items, d.Fail)
	case *Requeue:
		return each(op.Items, func(h HeldAttempt) Reason { return d.Requeue(h, op.Lost) })
	case *Lose:
		return each(op.Items, d.Lose)
	case *Due:
		return each(op.Items, d.Due)
	case *ForgetWorkers:
		d.closeList()
		ids, first := d.s.forgetWorkers(op.IDs)
		return d.keepOp(&ForgetWorkers{ids}, len(ids), first)
	case *ForgetKeys:
		d.closeList()
		keys, first := accepted(op.Keys, d.s.forgetKey)
		return d.keepOp(&ForgetKeys{keys}, len(keys), first)
	case *ForgetJobs:
		d.closeList()
		ids, first := accepted(op.IDs, d.s.forgetJob)
		return d.keepOp(&ForgetJobs{ids}, len(ids), first)
	case *Archive:
		d.closeList()
		ids, first := accepted(op.IDs, func(id JobID) Reason { return d.s.archiveJob(id, nil) })
		return d.keepOp(&Archive{ids, op.EndedBefore}, max(len(ids), min(1, int(op.EndedBefore))), first)
	case *NotifyDeadLetters:
		d.closeList()
		items, first := accepted(op.Items, func(it DeadLetterNotification) Reason { return d.s.notifyLetter(it, d.fx) })
		return d.keepOp(&NotifyDeadLetters{items}, len(items), first)
	case *RememberResults:
		d.closeList()
		items, first := accepted(op.Items, d.s.remember)
		return d.keepOp(&RememberResults{items}, len(items), first)
	case *ReuseResults:
		d.closeList()
		tasks, first := accepted(op.Tasks, func(t TaskRef) Reason { return d.s.reuse(t, d.fx) })
		return d.keepOp(&ReuseResults{tasks}, len(tasks), first)
	case *ForgetResults:
		d.closeList()
		keys, first := accepted(op.Keys, d.s.forgetResult)
		return d.keepOp(&ForgetResults{keys}, len(keys), first)
	case *RecordDelivered:
		d.closeList()
		items, first := accepted(op.Items, d.s.told)
		return d.keepOp(&RecordDelivered{items}, len(items), first)
	default:
		d.closeList()
		if r := op.apply(d.s, d.fx); r != Accepted {
			return r
		}
		return d.keepOp(op, 1, Accepted)
	}
}

// accepted applies items and gives those that were accepted, and the reason of
// the first that was not.
func accepted[T any](items []T, f func(T) Reason) (kept []T, first Reason) {
	for _, it := range items {
		switch r := f(it); {
		case r == Accepted:
			kept = append(kept, it)
		case first == Accepted:
			first = r
		}
	}
	return kept, first
}

// keepOp adds an operation of which some items were accepted.
func (d *EntryBuilder) keepOp(op Op, items int, r Reason) Reason {
	if items > 0 {
		d.s.mix(uint64(op.kind()) << 8)
		d.entry.Ops = append(d.entry.Ops, op)
		d.items += items
		d.size += opSize(op)
	}
	return r
}

// opSize is how long an operation is in the log. Chunks and headers, which are
// long, are not written for it.
func opSize(op Op) int {
	const numbers = 32 // kind and numbers of the operations below
	switch op := op.(type) {
	case *BeginUpload:
		return numbers + len(op.Header) + len(op.Key)
	case *JobChunk:
		return numbers + op.Chunk.Size()
	case *JobArray:
		return numbers + op.Chunk.Size()
	case *Checkpoint:
		return 2*numbers + len(op.Saved.Data) + len(op.Saved.File) + len(op.Saved.SHA256)
	default:
		var e encoder
		op.encode(&e)
		return 1 + len(e.b)
	}
}

// closeList puts the open list into the digest: no item joins it any more.
func (d *EntryBuilder) closeList() {
	if d.open != nil {
		d.s.mix(uint64(d.open.kind()) << 8)
		d.open = nil
	}
}

// listOf gives the open list of a kind, or a new one after closing another.
func listOf[T any, P interface {
	*T
	Op
}](d *EntryBuilder) P {
	if l, ok := d.open.(P); ok {
		return l
	}
	d.closeList()
	return P(new(T))
}

// keep counts an accepted item of a list, which joins the entry with its first.
func (d *EntryBuilder) keep(l Op, size int) Reason {
	if d.open != l {
		d.entry.Ops = append(d.entry.Ops, l)
		d.open = l
		d.size += itemSize
	}
	d.items++
	d.size += itemSize + size
	return Accepted
}

// itemSize is an upper estimate of an attempt and its worker in the log, and of
// a list's kind and length: two differences and two numbers.
const itemSize = 26

// Assign adds an assignment.
func (d *EntryBuilder) Assign(it AssignItem) Reason {
	l := listOf[Assign](d)
	if r := d.s.assign(it); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, 0)
}

// Begin adds the start of an at-most-once attempt.
func (d *EntryBuilder) RecordStart(h HeldAttempt) Reason {
	l := listOf[RecordStart](d)
	if r := d.s.beginAttempt(h); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Complete adds a completion.
func (d *EntryBuilder) Complete(it CompleteItem) Reason {
	l := listOf[Complete](d)
	if r := d.s.complete(it, d.fx); r != Accepted {
		return r
	}
	if len(l.Items) == cap(l.Items) {
		l.Items = slices.Grow(l.Items, max(d.completions, 1))
		d.completions = 0 // else many short lists would have room for all
	}
	l.Items = append(l.Items, it)
	return d.keep(l, len(it.Result)+len(it.OutputSHA256)+16)
}

// Fail adds a failure.
func (d *EntryBuilder) Fail(it FailItem) Reason {
	l := listOf[Fail](d)
	if r := d.s.fail(it, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, len(it.Error)+24)
}

// Requeue puts an attempt back; lost says that it ran on a worker that was lost.
func (d *EntryBuilder) Requeue(h HeldAttempt, lost bool) Reason {
	if l, ok := d.open.(*Requeue); ok && l.Lost != lost {
		d.closeList()
	}
	l := listOf[Requeue](d)
	l.Lost = lost
	if r := d.s.requeue(h, lost, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Lose ends an at-most-once attempt whose fate is unknown.
func (d *EntryBuilder) Lose(h HeldAttempt) Reason {
	l := listOf[Lose](d)
	if r := d.s.lose(h, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Due makes a scheduled task ready.
func (d *EntryBuilder) Due(it DueItem) Reason {
	l := listOf[Due](d)
	if r := d.s.due(it, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, 0)
}
