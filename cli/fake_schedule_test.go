package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/calendar"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeSchedules are the schedules of the fake cluster; mu of the leader guards them.
type fakeSchedules struct {
	scheduled  []*dtaskv1.Schedule
	startedFor map[string]string // job by key
}

// hourly returns the next ticks of every schedule of the fake cluster.
func hourly(n int) (ticks []*dtaskv1.ScheduleTick) {
	c, err := calendar.New(calendar.Config{Name: "fake", Every: time.Hour, Jitter: time.Minute})
	if err != nil {
		panic(err)
	}
	for _, t := range c.Preview(noon, n) {
		ticks = append(ticks, &dtaskv1.ScheduleTick{At: t.At.UnixMilli(), Local: t.At.Format(time.RFC3339), StartAt: t.Start.UnixMilli(), Note: t.Note})
	}
	return ticks
}

// nightly is a schedule with outcomes of each kind.
func nightly() *dtaskv1.Schedule {
	hour := func(n int) int64 { return ago(time.Duration(n) * time.Hour) }
	x := &dtaskv1.Schedule{
		Name: "nightly", Namespace: "default", Version: 3, SetBy: "alice", Owner: "alice", Tasks: 2,
		Definition: &dtaskv1.ScheduleDefinition{
			Cron: []string{"30 2 * * MON-FRI", "0 12 * * SUN"}, Timezone: "Europe/Berlin", Gap: 1, Repeat: 2, JitterMs: 300_000,
			From: "2026-01-01", Except: []string{"2026-12-25", "2027-01-01"}, Overlap: 1, Missed: 1, MissedWithinMs: 86_400_000,
		},
		CreatedAt: hour(99), ChangedAt: hour(50), State: "active", Next: hourly(3), OpenJobs: []string{"42"},
		Why: []string{
			`the first tick of cron "30 2 * * MON-FRI" and 1 more in Europe/Berlin after 2026-05-01T13:00:00+02:00, the last tick that was decided`,
			"job 42 has not ended: a tick that is due before its end is skipped (overlap: skip)",
		},
		Outcomes: []*dtaskv1.ScheduleOutcome{
			{TickAt: hour(1), DecidedAt: hour(1), Decision: 2},
			{TickAt: hour(2), DecidedAt: hour(2), Decision: 1, Job: "42", State: dtaskv1.JobState_JOB_STATE_RUNNING},
			{DecidedAt: hour(3), Decision: 1, Job: "41", State: dtaskv1.JobState_JOB_STATE_COMPLETED, Manual: true},
			{TickAt: hour(9), DecidedAt: hour(4), Decision: 1, Job: "40", State: dtaskv1.JobState_JOB_STATE_FAILED, Manual: true},
			{TickAt: hour(5), DecidedAt: hour(5), Decision: 1, Job: "7", Earlier: 6},
			{TickAt: hour(30), DecidedAt: hour(29), Decision: 3, Earlier: 1000},
		},
	}
	x.Last = x.GetOutcomes()[0]
	return x
}

func newFakeSchedules() fakeSchedules {
	return fakeSchedules{scheduled: []*dtaskv1.Schedule{nightly()}, startedFor: map[string]string{}}
}

func (f *fakeLeader) scheduleNamed(name string) (*dtaskv1.Schedule, error) {
	i := slices.IndexFunc(f.scheduled, func(x *dtaskv1.Schedule) bool { return x.GetName() == name })
	if i < 0 {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, fmt.Sprintf("schedule %q not found in the namespace \"default\"", name))
	}
	return f.scheduled[i], nil
}

func checkScheduleVersion(x *dtaskv1.Schedule, version uint32) error {
	if version == 0 || x.GetVersion() == version {
		return nil
	}
	return refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT,
		fmt.Sprintf("schedule %q has version %d, and the request expects version %d: read the schedule again", x.GetName(), x.GetVersion(), version))
}

func (f *fakeLeader) SetSchedule(stream grpc.ClientStreamingServer[dtaskv1.SetScheduleRequest, dtaskv1.SetScheduleResponse]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	first, err := stream.Recv()
	for m := first; err == nil && m.GetPart().GetMore(); {
		m, err = stream.Recv()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	h := first.GetPart().GetHeader()
	if h.GetName() == "refused" {
		return refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid request", "definition: timezone: unknown time zone \"Mars/Base\"")
	}
	if err := checkNames(h); err != nil {
		return err
	}
	x, err := f.scheduleNamed(h.GetName())
	if err != nil {
		x = &dtaskv1.Schedule{Name: h.GetName(), Namespace: "default", CreatedAt: noon.UnixMilli(), State: "active", Tasks: first.GetPart().GetTotal(), Owner: h.GetOwner()}
	}
	if err := checkScheduleVersion(x, first.GetIfVersion()); err != nil {
		return err
	}
	if x.GetVersion() == 0 {
		f.scheduled = append(f.scheduled, x)
	}
	x.Version++
	x.Definition, x.ChangedAt, x.Next = first.GetDefinition(), noon.UnixMilli(), hourly(3)
	set := proto.CloneOf(x)
	set.TimeZones = "2026a"
	return stream.SendAndClose(&dtaskv1.SetScheduleResponse{Schedule: set})
}

func (f *fakeLeader) ListSchedules(context.Context, *dtaskv1.ListSchedulesRequest) (*dtaskv1.ListSchedulesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.ListSchedulesResponse{Schedules: f.scheduled}, nil
}

func (f *fakeLeader) GetSchedule(_ context.Context, r *dtaskv1.GetScheduleRequest) (*dtaskv1.GetScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.scheduleNamed(r.GetName())
	if err == nil && x.GetState() == "active" {
		x.Next = hourly(int(r.GetNext()))
	}
	return &dtaskv1.GetScheduleResponse{Schedule: x}, err
}

func (f *fakeLeader) PauseSchedule(_ context.Context, r *dtaskv1.PauseScheduleRequest) (*dtaskv1.PauseScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.scheduleNamed(r.GetName())
	if err != nil {
		return nil, err
	}
	already := x.GetState() == "paused"
	if !already {
		x.State, x.PausedAt, x.PausedBy, x.PauseReason, x.Next, x.Why = "paused", noon.UnixMilli(), "alice", r.GetReason(), nil, []string{"it is paused"}
	}
	return &dtaskv1.PauseScheduleResponse{Schedule: x, Already: already}, nil
}

func (f *fakeLeader) ResumeSchedule(_ context.Context, r *dtaskv1.ResumeScheduleRequest) (*dtaskv1.ResumeScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.scheduleNamed(r.GetName())
	if err != nil {
		return nil, err
	}
	already := x.GetState() == "active"
	x.State, x.PausedAt, x.PausedBy, x.PauseReason, x.Next, x.Why = "active", 0, "", "", hourly(3), nil
	return &dtaskv1.ResumeScheduleResponse{Schedule: x, Already: already}, nil
}

func (f *fakeLeader) DeleteSchedule(_ context.Context, r *dtaskv1.DeleteScheduleRequest) (*dtaskv1.DeleteScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.scheduleNamed(r.GetName())
	if err == nil {
		err = checkScheduleVersion(x, r.GetIfVersion())
	}
	if err != nil {
		return nil, err
	}
	f.scheduled = slices.DeleteFunc(f.scheduled, func(other *dtaskv1.Schedule) bool { return other == x })
	return &dtaskv1.DeleteScheduleResponse{}, nil
}

// startRun starts a run, once per key.
func (f *fakeLeader) startRun(key string) (job string, existed bool) {
	if job, existed = f.startedFor[key]; !existed {
		job = fmt.Sprint(100 + len(f.startedFor))
		f.startedFor[key] = job
	}
	return job, existed
}

func (f *fakeLeader) RunSchedule(_ context.Context, r *dtaskv1.RunScheduleRequest) (*dtaskv1.RunScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := f.scheduleNamed(r.GetName())
	if err != nil {
		return nil, err
	}
	if r.GetIdempotencyKey() == "open" {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT,
			"earlier runs of schedule \"nightly\" have not ended, and its rule for overlaps is skip: wait for them, or cancel them")
	}
	job, existed := f.startRun(r.GetIdempotencyKey())
	return &dtaskv1.RunScheduleResponse{Job: job, Existed: existed, Tasks: x.GetTasks()}, nil
}

func (f *fakeLeader) BackfillSchedule(_ context.Context, r *dtaskv1.BackfillScheduleRequest) (*dtaskv1.BackfillScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.scheduleNamed(r.GetName()); err != nil {
		return nil, err
	}
	if r.GetIdempotencyKey() == "busy" {
		return nil, busy("owner \"alice\" exceeds 1 jobs per second")
	}
	if at := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }; r.GetTo() > noon.UnixMilli() {
		return nil, refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid request",
			fmt.Sprintf("invalid to %s: the tick after %s is not decided yet, and fires by itself; use an earlier time", at(r.GetTo()), at(noon.UnixMilli())))
	} else if r.GetIdempotencyKey() == "none" {
		return nil, refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid request",
			fmt.Sprintf("invalid period: has no tick from %s to %s", at(r.GetFrom()), at(r.GetTo())))
	}
	resp := &dtaskv1.BackfillScheduleResponse{}
	for at := r.GetFrom(); at <= r.GetTo(); at += time.Hour.Milliseconds() {
		job, existed := f.startRun(fmt.Sprint(r.GetIdempotencyKey(), at))
		resp.Runs = append(resp.Runs, &dtaskv1.BackfilledRun{TickAt: at, Job: job, Existed: existed})
	}
	return resp, nil
}
