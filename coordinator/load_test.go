package coordinator

import (
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// loadOf is a recorder of totals, and the time of its readings.
type loadOf struct {
	*loadRecorder

	totals *sequencer.Totals
	now    time.Time
}

func newLoadOf() *loadOf {
	totals := sequencer.NewTotals()
	return &loadOf{&loadRecorder{reader: summary{totals: totals}, scale: func(d time.Duration) time.Duration { return d }}, totals, time.Unix(1_000_000, 0)}
}

// reading is one at the present time.
func (l *loadOf) reading() *reading {
	r := l.reader.read()
	r.at = l.now
	return &r
}

// pass lets ticks pass, in each of which a task completes after a time.
func (l *loadOf) pass(term *sequencer.Sequencer, ticks int, run time.Duration) {
	for range ticks {
		l.keep(term, l.reading())
		l.now = l.now.Add(loadTick)
		l.totals.Completions.Add(1)
		l.totals.Run.Observe(run)
	}
}

func TestTheLoadIsOfTheLastMinuteFiveMinutesAndHour(t *testing.T) {
	t.Parallel()
	l, term := newLoadOf(), new(sequencer.Sequencer)
	l.pass(term, 3600/5, time.Second)
	l.pass(term, 240/5, 10*time.Millisecond)
	l.pass(term, 60/5, time.Millisecond)
	for i, want := range []struct{ least, most, slow uint64 }{{12, 13, 0}, {60, 63, 0}, {720, 756, 600}} {
		w := l.windows(term, l.reading())[i]
		if n := w.Counts.Completions; n < want.least || n > want.most || w.Run.N != n {
			t.Errorf("the last %s: got %d completions and %d durations, want %d to %d", w.Window, n, w.Run.N, want.least, want.most)
		}
		if covered := w.Covered; covered < w.Window || covered > w.Window*21/20+loadTick {
			t.Errorf("the last %s: %s are covered", w.Window, covered)
		}
		if slow := w.Run.Quantile(990) >= 900*time.Millisecond; slow != (want.slow > 0) {
			t.Errorf("the last %s: the 99th percentile is %s", w.Window, w.Run.Quantile(990))
		}
	}
	kept := 0
	for _, list := range l.kept {
		kept += len(list)
	}
	if kept > 100 {
		t.Errorf("%d readings are kept", kept)
	}
}

// What this replica did in an earlier term is not part of the present one.
func TestTheLoadBeginsAnewWithEachTerm(t *testing.T) {
	t.Parallel()
	l, first, second := newLoadOf(), new(sequencer.Sequencer), new(sequencer.Sequencer)
	l.pass(first, 100, time.Second)
	if w := l.windows(second, l.reading())[0]; w.Covered != 0 || w.Counts.Completions != 0 || w.Run.N != 0 {
		t.Errorf("before the first reading: got %+v", w)
	}
	l.pass(nil, 100, time.Second)
	l.pass(second, 4, time.Millisecond)
	for _, w := range l.windows(second, l.reading()) {
		if w.Covered != 4*loadTick || w.Counts.Completions != 4 || w.Run.Quantile(990) > 2*time.Millisecond {
			t.Errorf("the last %s: got %d completions in %s", w.Window, w.Counts.Completions, w.Covered)
		}
	}
}

// dtaskctl top reads the counts of queues that the metrics have: it must not ask the sequencer.
func TestTheLoadHasTheQueuesAsTheyWereCountedLast(t *testing.T) {
	t.Parallel()
	l, term := newLoadOf(), new(sequencer.Sequencer)
	l.machine, l.wall, l.leads = fsm.NewMachine(), time.Now, func() *sequencer.Sequencer { return term }
	if got := l.loadRecorder.read(); got == nil || got.Queues != nil {
		t.Errorf("before they were counted: got %+v", got)
	}
	l.totals.Queues.Store(&map[string]sequencer.QueueLoad{"etl": {Waiting: 7}})
	if got := l.loadRecorder.read(); got.Queues["etl"].Waiting != 7 {
		t.Errorf("afterwards: got %+v", got.Queues)
	}
}
