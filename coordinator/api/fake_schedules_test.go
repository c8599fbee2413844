package api

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (l *memLeader) SetSchedule(_ context.Context, n sequencer.NewSchedule) (*fsm.Schedule, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests++
	if l.fail != nil {
		return nil, l.fail
	}
	c, err := sequencer.Calendar(n.Name, &n.Recurrence)
	if err != nil {
		return nil, err
	}
	n.Ordered = c.InOrder()
	fork, _ := l.machine.Fork()
	id := fork.NextJob()
	reason := l.apply(func(d *fsm.EntryBuilder) fsm.Reason {
		d.Do(&fsm.BeginUpload{ID: id, Key: n.Key, KeyExpires: 1, Header: n.Header, Total: n.Total})
		for _, c := range n.Chunks {
			d.Do(&fsm.AddChunk{Job: id, Chunk: c})
		}
		r := d.Do(&fsm.SetSchedule{
			Upload: id, Sum: n.Sum, Digest: n.Digest, Recurrence: n.Recurrence, ScheduleRules: n.ScheduleRules,
			Owner: n.Owner, By: n.By, IfVersion: n.IfVersion, AtMS: d.NowMS(),
		})
		if r != fsm.Accepted {
			d.Do(&fsm.DropUpload{Job: id})
		}
		return r
	})
	if reason != fsm.Accepted {
		return nil, &sequencer.RejectedError{Reason: reason}
	}
	fork, _ = l.machine.Fork()
	return fork.ScheduleByName(n.Namespace, n.Name), nil
}

func (l *memLeader) PauseSchedule(ctx context.Context, id fsm.ScheduleID, reason, by string) (*fsm.Schedule, error) {
	err := l.propose(ctx, &fsm.PauseSchedule{ID: id, Reason: reason, By: by, AtMS: l.nowMS})
	return l.scheduleNow(id), err
}

func (l *memLeader) ResumeSchedule(ctx context.Context, id fsm.ScheduleID) (*fsm.Schedule, error) {
	err := l.propose(ctx, &fsm.ResumeSchedule{ID: id, AtMS: l.nowMS})
	return l.scheduleNow(id), err
}

func (l *memLeader) DeleteSchedule(ctx context.Context, id fsm.ScheduleID, version uint32) error {
	return l.propose(ctx, &fsm.DeleteSchedule{ID: id, IfVersion: version})
}

func (l *memLeader) RunSchedule(ctx context.Context, n sequencer.ScheduleRun) (sequencer.SubmitResult, error) {
	fork, _ := l.machine.Fork()
	id := fork.NextJob()
	err := l.propose(ctx, &fsm.RunSchedule{
		Schedule: n.Schedule, TickMS: n.TickMS, PreviousMS: n.PreviousMS, Key: n.Key, KeyExpires: l.nowMS + 1_000_000, Digest: n.Digest,
	})
	return sequencer.SubmitResult{ID: id}, err
}

func (l *memLeader) ClockAgrees() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.clockInDoubt
}

func (l *memLeader) scheduleNow(id fsm.ScheduleID) *fsm.Schedule {
	fork, _ := l.machine.Fork()
	return fork.Schedule(id)
}

// setupSchedules is setupIdentities for a cluster that has schedules. Its wall clock is that
// of the leader.
func setupSchedules(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	var r *replica
	wall := func(cfg *Config) {
		cfg.Wall = func() time.Time {
			r.leader.mu.Lock()
			defer r.leader.mu.Unlock()
			return time.UnixMilli(r.leader.nowMS)
		}
	}
	r = setupIdentities(t, append([]func(*Config){wall}, change...)...)
	for _, p := range []string{"reader", "submitter", "operator", "admin", "metrics", "worker", "both", "default", "ml"} { // their numbers are those of their principals
		id := identities[p]
		hash := [32]byte{byte(id.ID)}
		r.leader.op(t, &fsm.CreateIdentity{
			Name: p, Grant: fsm.Grant{Role: fsm.Role(id.Role), Namespaces: id.Namespaces}, Credential: fsm.Credential{Kind: credentialOf(p), Hash: hash}, CreatedMS: 1000,
		})
	}
	r.leader.op(t, &fsm.SetLevel{Level: fsm.OpLevel((*fsm.SetSchedule)(nil))})
	return r
}

func credentialOf(name string) fsm.CredentialKind {
	if name == "worker" {
		return fsm.KeyCredential
	}
	return fsm.TokenCredential
}

// sendSchedule sets a schedule by messages.
func (r *replica) sendSchedule(ctx context.Context, messages ...*dtaskv1.SetScheduleRequest) (*dtaskv1.Schedule, error) {
	stream, err := r.schedules.SetSchedule(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err := stream.Send(m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	got, err := stream.CloseAndRecv()
	return got.GetSchedule(), err
}

// everyTenMinutes is a request to set a schedule of one task.
func everyTenMinutes(name, namespace string) *dtaskv1.SetScheduleRequest {
	h := header(name)
	h.Namespace = namespace
	return &dtaskv1.SetScheduleRequest{
		Definition: &dtaskv1.ScheduleDefinition{EveryMs: 600_000, Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_ALLOW},
		Part:       &dtaskv1.JobPart{Header: h, Total: 1, Tasks: []*dtaskv1.TaskSpec{task("a")}},
	}
}

// mustSet sets a schedule as an identity.
func (r *replica) mustSet(t *testing.T, who string, m *dtaskv1.SetScheduleRequest) *dtaskv1.Schedule {
	t.Helper()
	x, err := r.sendSchedule(as(t.Context(), who), m)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
