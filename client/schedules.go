package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A ScheduleName names a schedule.
type ScheduleName struct {
	Namespace string // empty = the caller's only one, or default
	Name      string
}

// SetSchedule makes a schedule of a job, or replaces the one with the name and the
// namespace of the job. It returns the schedule with its next ticks. A repeated call changes
// nothing. version is the one that the schedule must have, or else the error is ErrConflict;
// 0 = any, or none. The error is ErrInvalid for a definition that the cluster does not
// accept. Neither message is modified.
func (c *Client) SetSchedule(ctx context.Context, job *dtaskv1.JobSpec, d *dtaskv1.ScheduleDefinition, version uint32) (*dtaskv1.Schedule, error) {
	total, err := countTasks(job)
	if err != nil {
		return nil, err
	}
	var set *dtaskv1.SetScheduleResponse
	err = c.do(ctx, operation{name: "setting schedule " + job.GetHeader().GetName(), run: func(ctx context.Context, t try) error {
		stream, err := t.schedules().SetSchedule(ctx)
		if err != nil {
			return err
		}
		parts := newJobParts(job, &dtaskv1.JobPart{Header: job.GetHeader(), Total: total})
		message := &dtaskv1.SetScheduleRequest{Definition: d, IfVersion: version}
		for more := true; more; {
			if message.Part, _, err = parts.next(); err != nil {
				return err
			}
			// An error of Send is io.EOF: that of CloseAndRecv is the reason.
			if err := stream.Send(message); err != nil && !errors.Is(err, io.EOF) {
				return err
			} else if err != nil {
				break
			}
			more, message = message.GetPart().GetMore(), &dtaskv1.SetScheduleRequest{}
		}
		set, err = stream.CloseAndRecv()
		return err
	}})
	return set.GetSchedule(), err
}

// ScheduleFilter selects schedules.
type ScheduleFilter struct {
	Namespace string // exact; empty = all that the caller has
	Limit     int    // 0 = no limit
	Stale     bool
	Fresh     func(*dtaskv1.Freshness) // as in ReadOptions
}

// Schedules lists schedules with their next tick, ascending by the time when they were first
// set. It ends with the first error.
func (c *Client) Schedules(ctx context.Context, f ScheduleFilter) iter.Seq2[*dtaskv1.Schedule, error] {
	return list(f.Limit, "", func(limit uint32, token string) (*dtaskv1.ListSchedulesResponse, error) {
		req := &dtaskv1.ListSchedulesRequest{Namespace: f.Namespace, Limit: limit, PageToken: token, Consistency: consistency(f.Stale)}
		got, err := call(ctx, c, operation{name: "listing schedules"}, dtaskv1.ScheduleServiceClient.ListSchedules, req)
		report(f.Fresh, got.GetFreshness())
		return got, err
	}, (*dtaskv1.ListSchedulesResponse).GetSchedules)
}

// Schedule returns a schedule with its last outcomes and up to next of its next ticks (0 =
// 3), or ErrNotFound. Of the options, only Stale and Fresh matter.
func (c *Client) Schedule(ctx context.Context, n ScheduleName, next uint32, opts ReadOptions) (*dtaskv1.Schedule, error) {
	req := &dtaskv1.GetScheduleRequest{Namespace: n.Namespace, Name: n.Name, Next: next, Consistency: consistency(opts.Stale)}
	got, err := call(ctx, c, operation{name: "reading schedule " + n.Name}, dtaskv1.ScheduleServiceClient.GetSchedule, req)
	report(opts.Fresh, got.GetFreshness())
	return got.GetSchedule(), err
}

// PauseSchedule keeps a schedule from firing, for a reason of at most 256 bytes. already
// reports whether it was paused before: it keeps its reason then. The error is ErrNotFound
// for an unknown schedule.
func (c *Client) PauseSchedule(ctx context.Context, n ScheduleName, reason string) (x *dtaskv1.Schedule, already bool, err error) {
	req := &dtaskv1.PauseScheduleRequest{Namespace: n.Namespace, Name: n.Name, Reason: reason}
	got, err := call(ctx, c, operation{name: "pausing schedule " + n.Name}, dtaskv1.ScheduleServiceClient.PauseSchedule, req)
	return got.GetSchedule(), got.GetAlready(), err
}

// ResumeSchedule lets a schedule fire again, from its next tick on. already reports whether
// it was not paused. The error is ErrNotFound for an unknown schedule.
func (c *Client) ResumeSchedule(ctx context.Context, n ScheduleName) (x *dtaskv1.Schedule, already bool, err error) {
	req := &dtaskv1.ResumeScheduleRequest{Namespace: n.Namespace, Name: n.Name}
	got, err := call(ctx, c, operation{name: "resuming schedule " + n.Name}, dtaskv1.ScheduleServiceClient.ResumeSchedule, req)
	return got.GetSchedule(), got.GetAlready(), err
}

// DeleteSchedule removes a schedule; its jobs stay. version is the one that it must have, or
// else the error is ErrConflict; 0 = any. The error is ErrNotFound for an unknown schedule,
// also if an attempt of this call whose answer was lost has deleted it.
func (c *Client) DeleteSchedule(ctx context.Context, n ScheduleName, version uint32) error {
	req := &dtaskv1.DeleteScheduleRequest{Namespace: n.Namespace, Name: n.Name, IfVersion: version}
	_, err := call(ctx, c, operation{name: "deleting schedule " + n.Name}, dtaskv1.ScheduleServiceClient.DeleteSchedule, req)
	return err
}

// A ScheduleRun is a run of a schedule that was started now.
type ScheduleRun struct {
	Job     string // its ID
	Existed bool   // an earlier call with the key started it
	Tasks   uint32 // of the job; 0 = the schedule was deleted meanwhile
}

// RunSchedule starts a run of a schedule now, also of one that is paused. A repeated call
// with the key returns the first run; a key is generated if it is empty, which covers the
// retries of this call. The error is ErrConflict if earlier runs have not ended and the
// schedule's rule for overlaps forbids another one.
func (c *Client) RunSchedule(ctx context.Context, n ScheduleName, key string) (ScheduleRun, error) {
	req := &dtaskv1.RunScheduleRequest{Namespace: n.Namespace, Name: n.Name, IdempotencyKey: key}
	if err := fillKey(&req.IdempotencyKey, &req.GeneratedKey); err != nil {
		return ScheduleRun{}, err
	}
	op := operation{name: "running schedule " + n.Name, key: req.GetIdempotencyKey()}
	got, err := call(ctx, c, op, dtaskv1.ScheduleServiceClient.RunSchedule, req)
	if err != nil {
		return ScheduleRun{}, err
	}
	return ScheduleRun{Job: got.GetJob(), Existed: got.GetExisted(), Tasks: got.GetTasks()}, nil
}

// BackfillSchedule starts a run for each tick from one instant to another, both included,
// the oldest first, at most 100. The runs wait for each other unless runs of the schedule
// may overlap. A repeated call with the key, which has at most 100 bytes, starts those that
// are missing; a key is generated if it is empty. The error is ErrInvalid for a period
// without a tick, with too many, or with one that is not decided yet.
func (c *Client) BackfillSchedule(ctx context.Context, n ScheduleName, from, to time.Time, key string) ([]*dtaskv1.BackfilledRun, error) {
	req := &dtaskv1.BackfillScheduleRequest{Namespace: n.Namespace, Name: n.Name, From: from.UnixMilli(), To: to.UnixMilli(), IdempotencyKey: key}
	if err := fillKey(&req.IdempotencyKey, &req.GeneratedKey); err != nil {
		return nil, err
	}
	op := operation{name: "backfilling schedule " + n.Name, key: req.GetIdempotencyKey()}
	got, err := call(ctx, c, op, dtaskv1.ScheduleServiceClient.BackfillSchedule, req)
	return got.GetRuns(), err
}
