package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/calendar"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxBackfill is how many ticks a backfill has: as many runs of a schedule may be open.
	maxBackfill = 100
	// maxBackfillKey bounds the key of a backfill: the key of each run has the tick, too.
	maxBackfillKey = 100
	// maxLeaderSkew is how far the wall clocks of two leaders may differ whose clocks a
	// majority confirms.
	maxLeaderSkew = 20 * time.Second
)

// hasTick reports whether a schedule has a tick after an instant.
func hasTick(c *calendar.Schedule, after time.Time) bool {
	_, ok := c.Next(after)
	return ok
}

// RunSchedule implements ScheduleService.
func (s *schedules) RunSchedule(ctx context.Context, r *dtaskv1.RunScheduleRequest) (*dtaskv1.RunScheduleResponse, error) {
	run, err := s.manual(ctx, r, r.GetGeneratedKey())
	if err != nil {
		return nil, err
	}
	got, err := run.start(ctx, r.GetIdempotencyKey(), 0, 0)
	if err != nil {
		return nil, err
	}
	resp := &dtaskv1.RunScheduleResponse{Job: formatJobID(got.ID), Existed: got.Existed}
	if run.schedule != nil {
		resp.Tasks = run.schedule.Total()
	}
	return resp, nil
}

// manualRuns are the runs of a schedule that a request starts.
type manualRuns struct {
	limit           *rateLimits
	leader          Leader
	st              *fsm.State    // confirmed by a quorum
	schedule        *fsm.Schedule // nil: unknown
	namespace, name string
	caller          *auth.Principal
	generated       bool // a program generated the key
}

// manual prepares the runs of a request. An unknown schedule is reported by start: a
// repeated request may find it deleted, and has the first outcome all the same.
func (s *schedules) manual(ctx context.Context, r namedSchedule, generated bool) (*manualRuns, error) {
	namespace, name, err := scheduleName(ctx, r)
	if err != nil {
		return nil, err
	}
	leader, err := s.leader()
	if err != nil {
		return nil, err
	}
	st, _ := s.cfg.Machine.Fork()
	return &manualRuns{
		limit: s.limit, leader: leader, st: st, schedule: st.ScheduleByName(namespace, name), namespace: namespace, name: name,
		caller: caller(ctx), generated: generated,
	}, nil
}

// start starts a run for a tick, or for none. A repeated request with the key returns the
// first run.
func (m *manualRuns) start(ctx context.Context, key string, tickMS, previousMS int64) (sequencer.SubmitResult, error) {
	run := sequencer.ScheduleRun{
		TickMS: tickMS, PreviousMS: previousMS, Key: fsm.ScopedKey(m.namespace, key), Generated: m.generated, Digest: m.digest(tickMS),
	}
	if id, digest, sealed, known := m.st.Key(run.Key); known {
		if !sealed || digest != run.Digest {
			return sequencer.SubmitResult{}, keyConflict()
		}
		return sequencer.SubmitResult{ID: id, Existed: true}, nil
	}
	if m.schedule == nil {
		return sequencer.SubmitResult{}, scheduleNotFound(m.st, m.namespace, m.name)
	}
	if err := m.limit.take(m.namespace, m.owner()); err != nil {
		return sequencer.SubmitResult{}, err
	}
	run.Schedule = m.schedule.ID
	got, err := m.leader.RunSchedule(ctx, run)
	if err != nil {
		if isRejected(err, fsm.RunOpen) {
			return got, m.overlaps(tickMS)
		}
		err = explainSchedule(err, m.schedule)
	}
	return got, err
}

// overlaps explains that other jobs keep a run from starting: earlier runs, and all that have
// the concurrency key of its job.
func (m *manualRuns) overlaps(tickMS int64) error {
	h := m.schedule.RunHeader()
	what := "earlier runs of schedule " + quote(m.schedule.Name)
	if c := m.schedule.Header().GetConcurrency(); c != nil {
		what = "earlier jobs with the concurrency key " + quote(c.GetKey())
	}
	if open := m.st.KeyJobs(fsm.ConcurrencyKey(h)); len(open) > 0 {
		what += " (" + firstJobs(open) + ")"
	}
	if tickMS != 0 {
		return conflict("%s have not ended, and at most %d may run and wait: wait for them, or cancel them", what, fsm.MostKeyJobs(h))
	}
	return conflict("%s have not ended, and the rule for overlaps of the schedule is %s: wait for them, or cancel them", what, overlapName(m.schedule.Overlap))
}

// owner returns the one whose submission rate the runs count against: the identity that asks
// for them, as if it submitted the job.
func (m *manualRuns) owner() string {
	if m.caller.Via == auth.ViaToken || m.caller.Via == auth.ViaKey {
		return m.caller.Name
	}
	return m.schedule.Header().GetOwner()
}

// digest returns the digest of a request. It names the schedule by its name: one that was
// deleted has no number.
func (m *manualRuns) digest(tickMS int64) (d [16]byte) {
	text := binary.AppendVarint(fmt.Appendf(nil, "run of a schedule\x00%s\x00%s\x00", m.namespace, m.name), tickMS)
	sum := sha256.Sum256(text)
	copy(d[:], sum[:])
	return d
}

// BackfillSchedule implements ScheduleService. Each run has a key of its own, so that a
// repeated request starts those that are missing.
func (s *schedules) BackfillSchedule(ctx context.Context, r *dtaskv1.BackfillScheduleRequest) (*dtaskv1.BackfillScheduleResponse, error) {
	if n := len(r.GetIdempotencyKey()); n > maxBackfillKey {
		return nil, invalid("invalid idempotency_key of %d bytes: must be 1 to %d", n, maxBackfillKey)
	}
	runs, err := s.manual(ctx, r, r.GetGeneratedKey())
	if err != nil {
		return nil, err
	}
	if runs.schedule == nil {
		return nil, scheduleNotFound(runs.st, runs.namespace, runs.name)
	}
	ticks, previous, err := s.backfilled(runs.leader, runs.schedule, r)
	if err != nil {
		return nil, err
	}
	if err := runs.fit(r.GetIdempotencyKey(), ticks); err != nil {
		return nil, err
	}
	resp := &dtaskv1.BackfillScheduleResponse{}
	for i, at := range ticks {
		got, err := runs.start(ctx, backfillKey(r.GetIdempotencyKey(), at), at, previous)
		if e, ok := err.(*Error); ok && e.Kind == KindEnded && i > 0 { //nolint:errorlint // it is not wrapped
			return nil, conflict("%s; %d of %d runs are started: repeat the request with the idempotency key %s to start the others", e.Message, i, len(ticks), quote(r.GetIdempotencyKey()))
		}
		if err != nil {
			return nil, err
		}
		resp.Runs = append(resp.Runs, &dtaskv1.BackfilledRun{TickAt: at, Job: formatJobID(got.ID), Existed: got.Existed})
		previous = at
	}
	return resp, nil
}

// backfillKey returns the key of the run for a tick.
func backfillKey(key string, tickMS int64) string {
	return key + "/" + time.UnixMilli(tickMS).UTC().Format(time.RFC3339)
}

// fit refuses a backfill of which only the first runs could start, because as many jobs with
// their concurrency key as may run and wait would do so.
func (m *manualRuns) fit(key string, ticks []int64) error {
	h := m.schedule.RunHeader()
	open, most, fresh := len(m.st.KeyJobs(fsm.ConcurrencyKey(h))), fsm.MostKeyJobs(h), 0
	for _, at := range ticks {
		if _, _, _, known := m.st.Key(fsm.ScopedKey(m.namespace, backfillKey(key, at))); !known {
			fresh++
		}
	}
	if m.schedule.Overlap == fsm.OverlapAllow || fresh == 0 || open+fresh <= most {
		return nil
	}
	which := "runs of schedule " + quote(m.name)
	if c := m.schedule.Header().GetConcurrency(); c != nil {
		which = "jobs with the concurrency key " + quote(c.GetKey())
	}
	return conflict("%d %s have not ended, and the period has %d more ticks, but at most %d may be open: use a shorter period, or wait for them", open, which, fresh, most)
}

// backfilled returns the ticks of a period, and the tick before them; 0 = they are the first. A
// tick that is not decided yet is not among them: it would run twice.
func (s *schedules) backfilled(leader Leader, x *fsm.Schedule, r *dtaskv1.BackfillScheduleRequest) (ticks []int64, previous int64, err error) {
	c, err := sequencer.Calendar(x.Name, &x.Recurrence)
	if err != nil {
		return nil, 0, refused("this version of dtask cannot evaluate schedule %s: %v; set it again", quote(x.Name), err)
	}
	decided := time.UnixMilli(x.AfterMS)
	// The ticks of a pause never fire: not even if the next leader, which may resume the
	// schedule, has a clock that is behind.
	if pause := s.cfg.Wall().Add(-maxLeaderSkew); x.IsPaused() && pause.After(decided) && leader.ClockAgrees() {
		decided = pause
	}
	from, to := time.UnixMilli(r.GetFrom()), time.UnixMilli(r.GetTo())
	switch {
	case r.GetFrom() < 0 || r.GetTo() < r.GetFrom():
		return nil, 0, invalid("invalid from %d or to %d: from must be the first instant of a period, and to the last one", r.GetFrom(), r.GetTo())
	case to.After(decided) && hasTickBetween(c, decided, to):
		return nil, 0, invalid("invalid to %s: the tick after %s is not decided yet, and fires by itself; use an earlier time", to.UTC().Format(time.RFC3339), decided.UTC().Format(time.RFC3339))
	}
	for after := time.UnixMilli(max(r.GetFrom()-1, 0)); ; { // 0 is no tick
		t, ok := c.Next(after)
		if !ok || t.At.After(to) {
			break
		}
		if len(ticks) == maxBackfill {
			return nil, 0, invalid("invalid period: has more than %d ticks; use a shorter one", maxBackfill)
		}
		ticks, after = append(ticks, t.At.UnixMilli()), t.At
	}
	if len(ticks) == 0 {
		return nil, 0, invalid("invalid period: has no tick from %s to %s", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	if t, ok := c.Last(time.Unix(0, 0), time.UnixMilli(ticks[0]).Add(-time.Second)); ok {
		previous = t.At.UnixMilli()
	}
	return ticks, previous, nil
}

// hasTickBetween reports whether a schedule has a tick after one instant and not after
// another.
func hasTickBetween(c *calendar.Schedule, after, until time.Time) bool {
	t, ok := c.Next(after)
	return ok && !t.At.After(until)
}
