package fsm

// EntryBuilder builds an entry. It applies each operation to a fork of the
// state, so that the next one is checked against all before it, and keeps the
// operation if it is accepted. The fork is therefore always what the
// replicated state will be when the entry is committed. Not safe for
// concurrent use.
type EntryBuilder struct {
	s         *State
	fx        *Effects
	entry     Entry
	open      openList // takes the next item of its kind; not yet in the digest
	digest    uint64   // before the entry
	now       int64    // before the entry
	size      int      // estimated length of the entry, in bytes
	items     int
	keepEmpty bool

	expectedCompletions int // capacity of the next list of completions
}

type openList interface {
	Op
	len() int
}

// itemSize is an upper estimate of the encoding of an attempt and its worker,
// and of a list's kind and length, in bytes.
const itemSize = 26

// NewEntryBuilder begins an entry on s, which must be the caller's own fork.
// Effects of accepted operations are added to fx.
func NewEntryBuilder(s *State, nowMS int64, fx *Effects) *EntryBuilder {
	b := &EntryBuilder{s: s, fx: fx, entry: Entry{NowMS: nowMS, After: s.entries}, digest: s.digest, now: s.now}
	s.begin(nowMS)
	return b
}

// Size is the estimated length of the entry in bytes. The entry is never much
// longer.
func (b *EntryBuilder) Size() int { return b.size }

// Items is the number of operations. Each item of a list counts as one.
func (b *EntryBuilder) Items() int { return b.items }

// NowMS is the time stamp of the entry.
func (b *EntryBuilder) NowMS() int64 { return b.entry.NowMS }

// ExpectCompletions reserves memory for n completions; fewer may follow.
// Without it, a list with the reports of many workers is copied several times
// while it grows.
func (b *EntryBuilder) ExpectCompletions(n int) { b.expectedCompletions = n }

// KeepEmpty makes Finish return an entry even if it has no operations. Its
// commit proves that no other leader changed the state that was read.
func (b *EntryBuilder) KeepEmpty() { b.keepEmpty = true }

// Finish returns the entry and the digest that the state must have after it.
// If no operation was accepted, ok is false, unless KeepEmpty was called, and
// the fork is unchanged.
func (b *EntryBuilder) Finish() (e Entry, digest uint64, ok bool) {
	b.closeList()
	if len(b.entry.Ops) == 0 && !b.keepEmpty {
		b.s.entries--
		b.s.digest, b.s.now = b.digest, b.now
		return Entry{}, b.digest, false
	}
	return b.entry, b.s.digest, true
}

// Do adds an operation, or the accepted items of a List, and returns the
// first reason for a rejection.
func (b *EntryBuilder) Do(op Op) Reason {
	if l, ok := op.(interface{ addTo(b *EntryBuilder) Reason }); ok {
		return l.addTo(b)
	}
	if b.isAboveLevel(op) {
		return AboveLevel
	}
	b.closeList()
	if r := op.apply(b.s, b.fx); r != Accepted {
		return r
	}
	b.s.mixKind(op.kind(), Accepted)
	b.entry.Ops = append(b.entry.Ops, op)
	b.items++
	b.size += sizeOf(op)
	return Accepted
}

// isAboveLevel reports whether some replicas may not know an operation. Nothing else
// stands between it and the log, where it would halt them.
func (b *EntryBuilder) isAboveLevel(op Op) bool { return OpLevel(op) > b.s.Level() }

// sizeOf estimates the length of an operation in the log. Long ones estimate
// it themselves, so that their contents are not encoded for it.
func sizeOf(op Op) int {
	if long, ok := op.(interface{ size() int }); ok {
		return long.size()
	}
	var e encoder
	op.fields(&coder{e: &e})
	return 1 + len(e.b)
}

// closeList adds the open list to the digest. No item joins it after that.
func (b *EntryBuilder) closeList() {
	if b.open != nil && b.open.len() > 0 {
		b.s.mixKind(b.open.kind(), Accepted)
	}
	b.open = nil
}

// add applies an item and appends it to the open list of its kind. A list
// joins the entry with its first accepted item.
func add[T any, B behavior[T]](b *EntryBuilder, it T) Reason {
	l, ok := b.open.(*List[T, B])
	if !ok {
		l = new(List[T, B])
		if b.isAboveLevel(l) {
			return AboveLevel
		}
		b.closeList()
		b.open = l
	}
	var do B
	if r := do.apply(b.s, it, b.fx); r != Accepted {
		return r
	}
	if len(l.Items) == 0 {
		b.entry.Ops = append(b.entry.Ops, l)
		b.size += itemSize
	}
	l.Items = append(l.Items, it)
	b.items++
	b.size += itemSize + do.size(&l.Items[len(l.Items)-1])
	return Accepted
}

// Assign adds an assignment.
func (b *EntryBuilder) Assign(it AssignItem) Reason { return add[AssignItem, assignOp](b, it) }

// RecordStart adds the start of an at-most-once attempt.
func (b *EntryBuilder) RecordStart(h HeldAttempt) Reason {
	return add[HeldAttempt, recordStartOp](b, h)
}

// Complete adds a completion.
func (b *EntryBuilder) Complete(it CompleteItem) Reason {
	if _, ok := b.open.(*Complete); !ok && b.expectedCompletions > 0 && !b.isAboveLevel((*Complete)(nil)) {
		b.closeList()
		b.open = &Complete{Items: make([]CompleteItem, 0, b.expectedCompletions)}
		b.expectedCompletions = 0 // else each of many short lists would reserve memory for all
	}
	return add[CompleteItem, completeOp](b, it)
}

// Fail adds a failure.
func (b *EntryBuilder) Fail(it FailItem) Reason { return add[FailItem, failOp](b, it) }

// Requeue adds the requeueing of an attempt. lost means that its worker was
// marked down while the attempt ran.
func (b *EntryBuilder) Requeue(h HeldAttempt, lost bool) Reason {
	if lost {
		return add[HeldAttempt, requeueLostOp](b, h)
	}
	return add[HeldAttempt, requeueOp](b, h)
}

// Lose adds the end of an at-most-once attempt whose outcome is unknown.
func (b *EntryBuilder) Lose(h HeldAttempt) Reason { return add[HeldAttempt, loseOp](b, h) }

// Due makes a scheduled task ready.
func (b *EntryBuilder) Due(a AttemptRef) Reason { return add[AttemptRef, dueOp](b, a) }
