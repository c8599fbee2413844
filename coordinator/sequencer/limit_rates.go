package sequencer

import (
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// limitRates are the token buckets of named limits with a rate. A bucket decides how many
// tasks with one use may start; the scheduler has its whole tokens. Like all soft state it is
// not replicated: a new leader begins with empty buckets, so that the starts in any time t are
// at most burst + rate × t, also if the leader changes. A limit that was set in this term begins full.
type limitRates struct {
	sched  *scheduler.Scheduler
	timers *timers
	since  time.Time       // when the term began
	set    map[string]bool // limits that got a rate in this term, by their own names
	byUse  map[string]*limitBucket
	byID   map[uint64]*limitBucket // what timers know
	lastID uint64
}

// A limitBucket is the bucket of one use.
type limitBucket struct {
	bucket
	id    uint64
	use   string
	timed bool // a timer adds tokens
}

// grantInterval is the least time between two additions of tokens by a timer. It bounds the
// batches per second that a high rate causes.
const grantInterval = 5 * time.Millisecond

// use gives the scheduler the tokens of a limit that a class uses.
func (r *limitRates) use(use string, l fsm.LimitSettings) {
	if l.Rate == 0 {
		r.sched.RemoveRate(use)
		return
	}
	k := r.byUse[use]
	if k == nil {
		k = r.add(use, l)
	}
	r.grant(k)
}

// add makes the bucket of a use. It was dropped when it was full, or is empty since the begin
// of the term.
func (r *limitRates) add(use string, l fsm.LimitSettings) *limitBucket {
	k := &limitBucket{bucket: newBucket(l.Rate, l.PeriodMS, l.Burst, r.since), use: use}
	if r.set[fsm.LimitOf(use)] {
		k.units = k.full()
	}
	r.byUse[use] = k
	r.number(k)
	return k
}

// number gives a bucket a new number, under which no timer knows it.
func (r *limitRates) number(k *limitBucket) {
	delete(r.byID, k.id)
	r.lastID++
	k.id, k.timed = r.lastID, false
	r.byID[k.id] = k
}

// grant sets the tokens of a use in the scheduler, and adds a timer if it has no token.
func (r *limitRates) grant(k *limitBucket) {
	r.sched.SetTokens(k.use, uint32(k.whole())) //nolint:gosec // at most MaxRateBurst
	if k.whole() > 0 || k.timed {
		return
	}
	k.timed = true
	r.timers.add(timer{at: k.at.Add(max(k.untilNext(), grantInterval)), kind: timerTokens, task: fsm.TaskRef{Job: fsm.JobID(k.id)}})
}

// fire adds the tokens of the time that has passed to the bucket of a timer.
func (r *limitRates) fire(b *batch, id uint64) {
	if k := r.byID[id]; k != nil {
		k.timed = false
		k.refill(b.now)
		r.grant(k)
	}
}

// settle takes the tokens of what started. It reports whether a limit that had none left has
// some again, so that more may start.
func (r *limitRates) settle(now time.Time) (more bool) {
	r.sched.Spent(func(use string, taken, left uint32) {
		k := r.byUse[use]
		k.refill(now) // before it takes: a full bucket does not fill while it waits
		k.units -= int64(taken) * k.token
		more = more || left == 0 && k.whole() > 0
		r.grant(k)
	})
	return more
}

// tokens returns how many tasks with a use the rate lets start now, and changes nothing. The
// scheduler may have fewer: it gets those of the time that passes when a task starts, or when it
// has none.
func (r *limitRates) tokens(use string, now time.Time) uint32 {
	k := r.byUse[use]
	if k == nil {
		return 0
	}
	then := k.bucket
	then.refill(now)
	return uint32(then.whole()) //nolint:gosec // at most MaxRateBurst
}

// changed follows a change of a limit. Its buckets keep their whole tokens.
func (r *limitRates) changed(now time.Time, name string, old, to fsm.LimitSettings) {
	switch {
	case old.Rate == to.Rate && old.PeriodMS == to.PeriodMS && old.Burst == to.Burst:
		return
	case to.Rate == 0:
		delete(r.set, name)
	case old.Rate == 0:
		r.set[name] = true
	}
	for _, use := range slices.Sorted(maps.Keys(r.byUse)) {
		if fsm.LimitOf(use) != name {
			continue
		}
		k := r.byUse[use]
		if to.Rate == 0 {
			r.drop(k)
			continue
		}
		k.refill(now)
		whole := min(k.whole(), int64(to.Burst))
		k.bucket = newBucket(to.Rate, to.PeriodMS, to.Burst, now)
		k.units = whole * k.token
		r.number(k) // a timer of the former rate may be far away
	}
}

// wait returns how long it takes until the rate lets a task with a use start; 0 = it may.
func (r *limitRates) wait(use string, now time.Time) time.Duration {
	k := r.byUse[use]
	if k == nil || k.whole() > 0 {
		return 0
	}
	return max(k.at.Add(k.untilNext()).Sub(now), time.Millisecond)
}

func (r *limitRates) drop(k *limitBucket) {
	delete(r.byUse, k.use)
	delete(r.byID, k.id)
}

// sweep drops the full buckets of uses that no task has. One that is made again is full, too.
func (r *limitRates) sweep(now time.Time) {
	for use, k := range r.byUse {
		if _, used := r.sched.Tokens(use); used {
			continue
		}
		if k.refill(now); k.units == k.full() {
			r.drop(k)
		}
	}
}
