package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// batcher starts the batches of a term.
type batcher struct {
	cfg    *Config
	origin time.Time // of monoTime
	count  uint64
}

// next starts a batch on the view.
func (m *batcher) next(view *fsm.State) *batch {
	now := time.Now()
	m.count++
	b := &batch{cfg: m.cfg, number: m.count, view: view, now: now, at: monoTime(now.Sub(m.origin)), wall: m.cfg.WallClock()}
	b.entry = fsm.NewEntryBuilder(view, b.wall.UnixMilli(), &b.fx)
	return b
}

// batch is one entry under construction, and everything that follows its
// commit.
type batch struct {
	cfg    *Config
	number uint64     // within the term, from 1
	view   *fsm.State // with all operations of the batch applied
	entry  *fsm.EntryBuilder
	fx     fsm.Effects
	now    time.Time // start of the batch, by the monotonic clock
	at     monoTime  // the same
	wall   time.Time // the same, by the wall clock; read once, because it may be set meanwhile

	out   []addressed // to workers, in order of first use
	after []func(index uint64, err error)
	ready []time.Time // when the sampled assignments became ready

	notifies bool // NotificationsCommitted is called after the commit
}

type addressed struct {
	to Session
	m  WorkerMessage
}

// full reports whether the entry takes no more operations.
func (b *batch) full() bool {
	return b.entry.Size() >= b.cfg.EntryBytes || b.entry.Items() >= b.cfg.EntryOps
}

// clusterMS is the time of an operation on identities and join tokens, and from which keys are
// remembered.
func (b *batch) clusterMS() int64 { return b.cfg.CredentialClock().UnixMilli() }

// monotonic returns when the wall clock will show wallMS, by the monotonic
// clock.
func (b *batch) monotonic(wallMS int64) time.Time {
	return b.now.Add(time.UnixMilli(wallMS).Sub(b.wall))
}

// to returns the message that goes to a worker after the commit. The worker
// must have a session.
func (b *batch) to(w *worker) *WorkerMessage {
	if w.batch != b.number || b.out[w.message].to != w.session {
		w.batch, w.message = b.number, len(b.out)
		b.out = append(b.out, addressed{to: w.session})
	}
	return &b.out[w.message].m
}

// stop tells a worker, if it has a session, to end an attempt.
func (b *batch) stop(w *worker, a fsm.AttemptRef, why dtaskv1.StopReason) {
	if w.session != nil {
		m := b.to(w)
		m.Stops = append(m.Stops, Stop{Attempt: a, Reason: why})
	}
}

// then registers what follows the commit or its failure. The entry is proposed
// even if it has no operations: "already cancelled" and "job not found" bind as
// much as "done", and a deposed leader that doesn't know it yet must not answer
// them.
func (b *batch) then(f func(index uint64, err error)) {
	b.entry.KeepEmpty()
	b.after = append(b.after, f)
}

// deliver sends everything that waited for the commit. It flushes the sessions
// last: of the goroutines that one goroutine wakes, the last runs first, and
// tasks should start before their submitters read the answer.
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
		b.cfg.Totals.Wait.Observe(now.Sub(since))
	}
}

// fail reports err to everything that waited for the commit.
func (b *batch) fail(err error) {
	for _, f := range b.after {
		f(0, err)
	}
}
