package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/zoneinfo"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// defaultMissedWithin is how old a missed tick may be if the definition does not say.
const defaultMissedWithin = 24 * time.Hour

// maxDefinition bounds an encoded definition, in bytes, below the bound of the state.
const maxDefinition = 128 << 10

// SetSchedule implements ScheduleService. The interceptor does not admit streams of
// requests, so that the handler asks whether the change can be recorded.
func (s *schedules) SetSchedule(stream grpc.ClientStreamingServer[dtaskv1.SetScheduleRequest, dtaskv1.SetScheduleResponse]) error {
	const method = dtaskv1.ScheduleService_SetSchedule_FullMethodName
	ctx := stream.Context()
	if err := s.admitAudit(method); err != nil {
		return err
	}
	leader, err := s.leader()
	if err != nil && s.awaitLeader(ctx, methods[method], err) {
		leader, err = s.leader()
	}
	if err != nil {
		return err
	}
	u := &upload{Server: s.Server, caller: caller(ctx), isTemplate: true}
	defer u.release()
	n, err := s.receive(ctx, u, stream.Recv)
	if err != nil {
		return err
	}
	x, err := leader.SetSchedule(ctx, n)
	switch {
	case isRejected(err, fsm.VersionMismatch):
		return s.scheduleMismatch(u.scope, n.Name, n.IfVersion)
	case isRejected(err, fsm.LimitExceeded):
		return refused("the limits of schedules are 10,000, and 64 MiB for all of their jobs together: delete some, or make the job smaller")
	case isRejected(err, fsm.QueueNotFound), isRejected(err, fsm.LimitNotFound):
		return s.explainDeleted(n.Header, err)
	case isRejected(err, fsm.IdentityRevoked), isRejected(err, fsm.IdentityNotFound):
		return denied("%s was revoked", u.caller)
	case err != nil:
		return err
	}
	shown := s.showNow(x)
	shown.TimeZones = zoneinfo.Version()
	return stream.SendAndClose(&dtaskv1.SetScheduleResponse{Schedule: shown})
}

// receive receives a schedule to set. It gives up if the client pauses for longer than
// Config.UploadPause, or if the server stops.
func (s *schedules) receive(ctx context.Context, u *upload, recv func() (*dtaskv1.SetScheduleRequest, error)) (sequencer.NewSchedule, error) {
	type message struct {
		m   *dtaskv1.SetScheduleRequest
		err error
	}
	messages := make(chan message) // the goroutine ends with the call
	s.streams.Go(func() {
		for {
			m, err := recv()
			select {
			case messages <- message{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	b := scheduleBuilder{schedules: s, upload: u}
	pause := time.NewTimer(s.cfg.UploadPause)
	defer pause.Stop()
	for {
		select {
		case got := <-messages:
			switch {
			case errors.Is(got.err, io.EOF):
				return b.finish()
			case got.err != nil:
				return sequencer.NewSchedule{}, got.err
			}
			if err := b.take(got.m); err != nil {
				return sequencer.NewSchedule{}, err
			}
			pause.Reset(s.cfg.UploadPause)
		case <-pause.C:
			return sequencer.NewSchedule{}, &Error{Kind: KindBusy, Message: "schedule stalled: no part of its job arrived for " + s.cfg.UploadPause.String()}
		case <-s.stopping:
			return sequencer.NewSchedule{}, errStopping
		}
	}
}

// scheduleBuilder builds a schedule from the messages of a stream.
type scheduleBuilder struct {
	*schedules
	upload *upload
	out    sequencer.NewSchedule
	begun  bool
	ended  bool // the last part has arrived
}

// take takes the next message.
func (b *scheduleBuilder) take(m *dtaskv1.SetScheduleRequest) error {
	p := m.GetPart()
	switch size := proto.Size(m); {
	case size > maxMessage:
		return invalid("message: has %d bytes; send at most %d", size, maxMessage)
	case p == nil:
		return invalid("part: missing; send the parts of the job")
	case b.ended:
		return invalid("part: the last one was sent before; set more in all parts but the last")
	case b.begun && (m.GetDefinition() != nil || m.GetIfVersion() != 0):
		return invalid("definition, if_version: must be in the first message only")
	}
	if err := b.upload.take(partCost(p)); err != nil {
		return err
	}
	if !b.begun {
		b.begun = true
		if err := b.begin(m); err != nil {
			return err
		}
	}
	b.ended = !p.GetMore()
	return b.upload.add(p)
}

// begin checks what only the first message has.
func (b *scheduleBuilder) begin(m *dtaskv1.SetScheduleRequest) error {
	if err := b.checkLevel(); err != nil {
		return err
	}
	p, h := m.GetPart(), m.GetPart().GetHeader()
	switch {
	case p.GetIdempotencyKey() != "" || p.GetGeneratedKey():
		return invalid("idempotency_key, generated_key: must be empty; a schedule is set by its name")
	case p.GetRerunOf() != "":
		return invalid("rerun_of: must be empty; the runs of a schedule have its ticks")
	case h.GetName() == "":
		return invalid("job.name: missing; it is the name of the schedule")
	case h.GetStartAtMs() != 0:
		return invalid("job.start_at: must be empty: the schedule decides when its runs start; start_after delays each of them")
	case len(h.GetNeeds()) > 0:
		return invalid("job.needs: must be empty: the runs of a schedule wait for each other by its rule for overlaps")
	}
	var err error
	if b.out.Recurrence, b.out.ScheduleRules, err = b.definition(h.GetName(), m.GetDefinition()); err != nil {
		return err
	}
	if c := h.GetConcurrency(); c != nil {
		own := max(c.GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP)
		if asked := m.GetDefinition().GetOverlap(); asked != 0 && asked != own {
			return invalid("definition.overlap: differs from job.concurrency.overlap: send one of them")
		}
		b.out.Overlap = fsm.Overlap(own) //nolint:gosec // package spec reports unknown values
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	p.IdempotencyKey, p.GeneratedKey = hex.EncodeToString(key[:]), true
	b.out.Name, b.out.IfVersion = h.GetName(), m.GetIfVersion()
	who := b.upload.caller
	b.out.By = who.Name
	if who.Via == auth.ViaToken || who.Via == auth.ViaKey {
		b.out.Owner = fsm.IdentityID(who.ID)
	}
	return nil
}

// finish returns the schedule after the last message.
func (b *scheduleBuilder) finish() (sequencer.NewSchedule, error) {
	if !b.ended {
		return b.out, invalid("part: the stream ended before the last part")
	}
	if err := b.setTimezone(); err != nil {
		return b.out, err
	}
	var err error
	b.out.Submission, err = b.upload.seal()
	b.out.Namespace = b.upload.header.GetNamespace()
	return b.out, err
}

// setTimezone adds the time zone to the template if its tasks have expressions of the run. The
// state machine adds the rest of the run to it. Other templates stay as they were before there
// were such expressions.
func (b *scheduleBuilder) setTimezone() error {
	if !b.upload.checker.UsesRun() {
		return nil
	}
	b.upload.header.Run = &dtaskv1.ScheduledRun{Timezone: cmp.Or(b.out.Zone, "UTC")}
	return b.upload.encoder.header(b.upload.header)
}

// checkLevel refuses schedules that a replica of an earlier version would not know.
func (s *schedules) checkLevel() error {
	var level fsm.Level
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { level = st.Level() })
	if needed := fsm.OpLevel((*fsm.SetSchedule)(nil)); level < needed {
		return refused("the cluster is at feature level %d, and schedules require %d: finish the upgrade (dtaskctl cluster upgrade finish)", level, needed)
	}
	return nil
}

// definition checks the definition of a schedule by the time zones of this replica.
func (s *schedules) definition(name string, d *dtaskv1.ScheduleDefinition) (r fsm.Recurrence, rules fsm.ScheduleRules, err error) {
	if d == nil {
		return r, rules, invalid("definition: missing; send it in the first message")
	}
	if rules, err = rulesOf(d); err != nil {
		return r, rules, err
	}
	switch size := proto.Size(d); {
	case size > maxDefinition:
		return r, rules, invalid("definition: has %d bytes; must have at most %d", size, maxDefinition)
	case d.GetEveryMs() < 0 || d.GetEveryMs() > maxDelay.Milliseconds():
		return r, rules, invalid("definition.every_ms: %d is out of range; must be 1000 to %d", d.GetEveryMs(), maxDelay.Milliseconds())
	case d.GetJitterMs() < 0 || d.GetJitterMs() > maxDelay.Milliseconds():
		return r, rules, invalid("definition.jitter_ms: %d is out of range; must be at most a day", d.GetJitterMs())
	}
	r = RecurrenceOf(d)
	c, err := sequencer.Calendar(name, &r)
	if err != nil {
		return r, rules, invalid("definition: %v", err)
	}
	if now := s.cfg.Wall(); !hasTick(c, now) {
		return r, rules, invalid("definition: has ended: it has no tick after %s; set a later until", now.UTC().Format(time.RFC3339))
	}
	return r, rules, nil
}

// RecurrenceOf returns when a definition fires, in the form in which the state has it.
// Definitions that mean the same by default have equal forms.
func RecurrenceOf(d *dtaskv1.ScheduleDefinition) fsm.Recurrence {
	r := fsm.Recurrence{
		Cron: d.GetCron(), EveryMS: d.GetEveryMs(), At: d.GetAt(), Zone: d.GetTimezone(), JitterMS: d.GetJitterMs(),
		From: d.GetFrom(), Until: d.GetUntil(), Except: d.GetExcept(),
	}
	if r.Zone == "UTC" {
		r.Zone = ""
	}
	if d.GetGap() == dtaskv1.ScheduleGap_SCHEDULE_GAP_SKIP {
		r.Gap = uint8(dtaskv1.ScheduleGap_SCHEDULE_GAP_SKIP)
	}
	if d.GetRepeat() == dtaskv1.ScheduleRepeat_SCHEDULE_REPEAT_TWICE {
		r.Repeat = uint8(dtaskv1.ScheduleRepeat_SCHEDULE_REPEAT_TWICE)
	}
	return r
}

// rulesOf returns the rules for overlaps and missed ticks, with defaults filled in.
func rulesOf(d *dtaskv1.ScheduleDefinition) (rules fsm.ScheduleRules, err error) {
	known := func(names map[int32]string, field string, n int32) {
		if names[n] == "" && err == nil {
			err = invalid("definition.%s: unknown value %d", field, n)
		}
	}
	known(dtaskv1.ScheduleGap_name, "gap", int32(d.GetGap()))
	known(dtaskv1.ScheduleRepeat_name, "repeat", int32(d.GetRepeat()))
	known(dtaskv1.ScheduleOverlap_name, "overlap", int32(d.GetOverlap()))
	known(dtaskv1.ScheduleMissed_name, "missed", int32(d.GetMissed()))
	if err != nil {
		return rules, err
	}
	rules = fsm.ScheduleRules{
		Overlap:  fsm.Overlap(max(d.GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP)), //nolint:gosec // known
		Missed:   fsm.MissedRule(max(d.GetMissed(), dtaskv1.ScheduleMissed_SCHEDULE_MISSED_ONE)),  //nolint:gosec // known
		WithinMS: d.GetMissedWithinMs(),
	}
	switch {
	case rules.WithinMS < 0 || rules.Missed == fsm.MissedSkip && rules.WithinMS != 0:
		return rules, invalid("definition.missed_within_ms: %d is invalid; must be above 0, and 0 if missed ticks are skipped", rules.WithinMS)
	case rules.Missed != fsm.MissedSkip:
		rules.WithinMS = cmp.Or(rules.WithinMS, defaultMissedWithin.Milliseconds())
	}
	return rules, nil
}
