package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// loadTick is how often a leader keeps a reading.
const loadTick = 5 * time.Second

// loadWindows are the times for which a leader knows its load, and how many readings it
// keeps for each: 8 KB each, so less than 1 MB together.
var loadWindows = []struct {
	window time.Duration
	every  int // ticks between two readings
}{
	{time.Minute, 1},
	{5 * time.Minute, 3},
	{time.Hour, 36},
}

// loadRecorder keeps readings of the totals while this replica leads. Safe for concurrent
// use.
type loadRecorder struct {
	reader  summary // reads the totals
	machine *fsm.Machine
	wall    func() time.Time
	scale   func(time.Duration) time.Duration
	leads   func() *sequencer.Sequencer // the term that this replica leads and has started, or nil

	mu    sync.Mutex           // guards what follows
	term  *sequencer.Sequencer // that the readings are of; nil: none
	ticks int                  // in this term
	kept  [][]*reading         // by window, the oldest first
}

func (r *replica) newLoadRecorder() *loadRecorder {
	return &loadRecorder{
		machine: r.machine, wall: r.cfg.Wall, scale: r.cfg.TimeScale.Scale, reader: summary{totals: r.totals},
		leads: func() *sequencer.Sequencer {
			if !r.leadership.established() {
				return nil // what is counted is of an earlier term
			}
			return r.leadership.term.Load()
		},
	}
}

// run keeps a reading each tick until ctx is done.
func (l *loadRecorder) run(ctx context.Context) error {
	tick := time.NewTicker(l.scale(loadTick))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			now := l.reader.read()
			l.keep(l.leads(), &now)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keep keeps a reading of a term; nil: this replica does not lead.
func (l *loadRecorder) keep(term *sequencer.Sequencer, now *reading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term != l.term {
		l.term, l.ticks, l.kept = term, 0, make([][]*reading, len(loadWindows))
	}
	if term == nil {
		return
	}
	for i, w := range loadWindows {
		if l.ticks%w.every != 0 {
			continue
		}
		l.kept[i] = append(l.kept[i], now)
		list := l.kept[i]
		// All but the first are within the window: the first begins it.
		for len(list) > 1 && now.at.Sub(list[1].at) >= l.scale(w.window) {
			list = list[1:]
		}
		l.kept[i] = list
	}
	l.ticks++
}

// read returns the load of the term that this replica leads; nil outside of one.
func (l *loadRecorder) read() *api.Load {
	term := l.leads()
	if term == nil {
		return nil
	}
	now, t := l.reader.read(), l.reader.totals
	load := &api.Load{
		Term: term.Term(), At: l.wall(), Totals: now.stats, Oldest: time.Duration(t.OldestWait.Load()), Unplaceable: t.Unplaceable.Load(),
		Held: t.Held.Load(), Orphaned: t.Orphaned.Load(), Workers: t.Workers.Load(), Windows: l.windows(term, &now),
	}
	for p := scheduler.Urgent; p >= scheduler.Low; p-- {
		load.Ready = append(load.Ready, api.ReadyTasks{Priority: priorities[p], Tasks: t.Depth[p].Load()})
	}
	if counted := t.Queues.Load(); counted != nil {
		load.Queues = *counted
	}
	l.machine.Read(func(st *fsm.State, _ uint64) { load.Slots = st.SlotsUp() })
	return load
}

// priorities are the scheduler's as the API names them.
var priorities = map[scheduler.Priority]dtaskv1.Priority{
	scheduler.Low: dtaskv1.Priority_PRIORITY_LOW, scheduler.Normal: dtaskv1.Priority_PRIORITY_NORMAL,
	scheduler.High: dtaskv1.Priority_PRIORITY_HIGH, scheduler.Urgent: dtaskv1.Priority_PRIORITY_URGENT,
}

// windows returns what happened from the first reading of each window until now. Without a
// reading of the term, nothing is known.
func (l *loadRecorder) windows(term *sequencer.Sequencer, now *reading) []api.LoadWindow {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]api.LoadWindow, len(loadWindows))
	for i, w := range loadWindows {
		list[i].Window = w.window
		if l.term != term || len(l.kept[i]) == 0 {
			continue
		}
		first := l.kept[i][0]
		for k := 1; k < len(l.kept[i]) && now.at.Sub(l.kept[i][k].at) >= l.scale(w.window); k++ {
			first = l.kept[i][k] // the last tick was a while ago
		}
		list[i].Covered = now.at.Sub(first.at)
		list[i].Counts = now.stats.Since(first.stats)
		list[i].Wait, list[i].Run = now.wait.Since(&first.wait), now.run.Since(&first.run)
	}
	return list
}
