package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// batch is one entry in the making, with all that follows once it is committed.
type batch struct {
	s      *Sequencer
	number uint64 // of the batches of the term, from 1
	draft  *fsm.EntryBuilder
	fx     fsm.Effects
	now    time.Time // monotonic, when the batch was begun
	at     moment    // the same

	out   []addressed     // to workers, in order of first use
	index map[Session]int // where in out
	after []func(index uint64, err error)
	ready []time.Time // since when sampled assignments had been ready

	noticed bool // whoever tells notices is woken after commit
}

type addressed struct {
	to Session
	m  WorkerMessage
}

func (s *Sequencer) newBatch() *batch {
	now := time.Now()
	s.batches++
	b := &batch{s: s, number: s.batches, now: now, at: s.moment(now), index: make(map[Session]int)}
	b.draft = fsm.NewEntryBuilder(s.view, s.cfg.WallClock().UnixMilli(), &b.fx)
	return b
}

// room reports whether the entry takes more.
func (b *batch) room() bool {
	return b.draft.Size() < b.s.cfg.EntryBytes && b.draft.Items() < b.s.cfg.EntryOps
}

// to gives the message that goes to a session after commit.
func (b *batch) to(to Session) *WorkerMessage {
	i, ok := b.index[to]
	if !ok {
		i = len(b.out)
		b.index[to] = i
		b.out = append(b.out, addressed{to: to})
	}
	return &b.out[i].m
}

// then registers what follows the commit, or its failure. There is an entry to
// be committed even if nothing was changed: "it is cancelled already" and "there
// is no such job" bind as much as "done", and a leader that was deposed without
// knowing it cannot say them.
func (b *batch) then(f func(index uint64, err error)) {
	b.draft.KeepEmpty()
	b.after = append(b.after, f)
}

// toWorker is to for the session of a worker that is given one thing after the other.
func (b *batch) toWorker(w *worker) *WorkerMessage {
	if w.batch != b.number || b.out[w.place].to != w.session {
		b.to(w.session)
		w.batch, w.place = b.number, b.index[w.session]
	}
	return &b.out[w.place].m
}

// stop tells a session to end an attempt.
func (b *batch) stop(to Session, a fsm.AttemptRef, why dtaskv1.StopReason) {
	if to != nil {
		m := b.to(to)
		m.Stop = append(m.Stop, StopOrder{Attempt: a, Reason: why})
	}
}

// empty reports whether nothing at all would follow.
func (b *batch) empty() bool { return len(b.out) == 0 }

// deliver lets out what waited for the commit. Those that send to workers are woken last: of the
// goroutines that one has woken the last is the first to run, and tasks begin before anybody learns that
// his job is stored.
func (b *batch) deliver(index uint64) {
	for _, a := range b.out {
		a.to.Send(a.m)
	}
	for _, f := range b.after {
		f(index, nil)
	}
	for _, a := range b.out {
		a.to.Flush()
	}
	now := time.Now()
	for _, since := range b.ready {
		b.s.cfg.Totals.Wait.Observe(now.Sub(since))
	}
}

// fail tells those who wait that the entry's fate is err.
func (b *batch) fail(err error) {
	for _, f := range b.after {
		f(0, err)
	}
}
