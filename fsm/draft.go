package fsm

// Draft is an entry in the making. Each operation is applied to a fork of the
// state at once, so that the next is checked against all that went before, and
// is kept only if it was accepted. The fork is therefore always what the
// replicated state will be once the entry is committed. Not safe for concurrent
// use.
type Draft struct {
	s      *State
	fx     *Effects
	entry  Entry
	open   Op     // list that the next item may join; not yet in the digest
	digest uint64 // before the entry
	size   int    // about how long the entry will be, in bytes
	items  int
}

// NewDraft begins an entry on s, which must be the caller's own fork. Effects
// of accepted operations are added to fx.
func NewDraft(s *State, nowMS int64, fx *Effects) *Draft {
	d := &Draft{s: s, fx: fx, entry: Entry{NowMS: nowMS}, digest: s.digest}
	s.begin(nowMS)
	return d
}

// State is the fork with all accepted operations applied.
func (d *Draft) State() *State { return d.s }

// Size is about how long the entry will be, in bytes; never far below.
func (d *Draft) Size() int { return d.size }

// Items is the number of operations, items of lists counted one by one.
func (d *Draft) Items() int { return d.items }

// NowMS is the stamp of the entry.
func (d *Draft) NowMS() int64 { return d.entry.NowMS }

// Finish ends the entry and gives it with the digest that the state must have
// after it. If nothing was accepted, ok is false and the fork is as it was.
func (d *Draft) Finish() (e Entry, digest uint64, ok bool) {
	d.closeList()
	if len(d.entry.Ops) == 0 {
		d.s.entries--
		d.s.digest = d.digest
		return Entry{}, d.digest, false
	}
	return d.entry, d.s.digest, true
}

// Do applies a single operation.
func (d *Draft) Do(op Op) Reason {
	d.closeList()
	before := d.s.digest
	r := op.apply(d.s, d.fx)
	if r != Accepted {
		d.s.digest = before
		return r
	}
	d.s.mix(uint64(op.kind()) << 8)
	d.entry.Ops = append(d.entry.Ops, op)
	d.items++
	d.size += opSize(op)
	return Accepted
}

// opSize is an upper estimate of an operation's length in the log.
func opSize(op Op) int {
	const small = 128
	switch op := op.(type) {
	case *JobBegin:
		return small + len(op.Header) + len(op.Key)
	case *JobChunk:
		return small + op.Chunk.Size()
	case *ForgetKeys:
		n := small
		for _, k := range op.Keys {
			n += len(k) + 2
		}
		return n
	case *WorkerJoin:
		n := small + len(op.Version) + len(op.Address)
		for _, l := range op.Labels {
			n += len(l.Key) + len(l.Value) + 4
		}
		return n + 32*len(op.Resources)
	case *ForgetJobs:
		return small + 10*len(op.IDs)
	case *ForgetWorkers:
		return small + 5*len(op.IDs)
	default:
		return 4 * small // reasons and errors are short
	}
}

// closeList puts the open list into the digest: no item joins it any more.
func (d *Draft) closeList() {
	if d.open != nil {
		d.s.mix(uint64(d.open.kind()) << 8)
		d.open = nil
	}
}

// listOf gives the open list of a kind, or a new one after closing another.
func listOf[T any, P interface {
	*T
	Op
}](d *Draft) P {
	if l, ok := d.open.(P); ok {
		return l
	}
	d.closeList()
	return P(new(T))
}

// keep counts an accepted item of a list, which joins the entry with its first.
func (d *Draft) keep(l Op, size int) Reason {
	if d.open != l {
		d.entry.Ops = append(d.entry.Ops, l)
		d.open = l
		d.size += itemSize
	}
	d.items++
	d.size += itemSize + size
	return Accepted
}

// itemSize is an upper estimate of an attempt and its worker in the log.
const itemSize = 16

// Assign adds an assignment.
func (d *Draft) Assign(it AssignItem) Reason {
	l := listOf[Assign](d)
	if r := d.s.assign(it); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, 0)
}

// Begin adds the start of an at-most-once attempt.
func (d *Draft) Begin(h HeldItem) Reason {
	l := listOf[Begin](d)
	if r := d.s.beginAttempt(h); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Complete adds a completion.
func (d *Draft) Complete(it CompleteItem) Reason {
	l := listOf[Complete](d)
	if r := d.s.complete(it, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, len(it.Result)+len(it.OutputSHA256)+16)
}

// Fail adds a failure.
func (d *Draft) Fail(it FailItem) Reason {
	l := listOf[Fail](d)
	if r := d.s.fail(it, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, len(it.Error)+24)
}

// Requeue puts an attempt back.
func (d *Draft) Requeue(h HeldItem) Reason {
	l := listOf[Requeue](d)
	if r := d.s.requeue(h, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Lose ends an at-most-once attempt whose fate is unknown.
func (d *Draft) Lose(h HeldItem) Reason {
	l := listOf[Lose](d)
	if r := d.s.lose(h, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, h)
	return d.keep(l, 0)
}

// Due makes a scheduled task ready.
func (d *Draft) Due(it DueItem) Reason {
	l := listOf[Due](d)
	if r := d.s.due(it, d.fx); r != Accepted {
		return r
	}
	l.Items = append(l.Items, it)
	return d.keep(l, 0)
}
