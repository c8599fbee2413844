package api

import (
	"context"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

func (l *memLeader) queueNow(name string) *fsm.Queue {
	fork, _ := l.machine.Fork()
	return fork.Queue(name)
}

func (l *memLeader) SetQueue(ctx context.Context, name string, to fsm.QueueSettings, version uint32, by string) (*fsm.Queue, error) {
	op := &fsm.SetQueue{Name: name, QueueSettings: to, By: by, IfVersion: version, AtMS: max(l.nowMS, 1)}
	if old := l.queueNow(name); old != nil {
		op.Pause = old.Pause
	}
	err := l.propose(ctx, op)
	return l.queueNow(name), err
}

func (l *memLeader) pauseQueue(ctx context.Context, name string, to fsm.QueuePause) (*fsm.Queue, bool, error) {
	q := l.queueNow(name)
	switch {
	case q == nil:
		return nil, false, l.propose(ctx, &fsm.DeleteQueue{Name: name})
	case q.IsPaused() == (to.AtMS != 0):
		return q, true, nil
	}
	err := l.propose(ctx, &fsm.SetQueue{Name: name, QueueSettings: q.QueueSettings, Pause: to, AtMS: max(l.nowMS, 1)})
	return l.queueNow(name), false, err
}

func (l *memLeader) PauseQueue(ctx context.Context, name, reason, by string) (*fsm.Queue, bool, error) {
	return l.pauseQueue(ctx, name, fsm.QueuePause{AtMS: max(l.nowMS, 1), By: by, Reason: reason})
}

func (l *memLeader) ResumeQueue(ctx context.Context, name, _ string) (*fsm.Queue, bool, error) {
	return l.pauseQueue(ctx, name, fsm.QueuePause{})
}

func (l *memLeader) DeleteQueue(ctx context.Context, name string, version uint32) error {
	return l.propose(ctx, &fsm.DeleteQueue{Name: name, IfVersion: version})
}

func (l *memLeader) QueueLoads(context.Context) (map[string]sequencer.QueueLoad, error) {
	return map[string]sequencer.QueueLoad{"etl": {Waiting: 7, Running: 3, Oldest: 1_500_000, P50: 2_000_000, P99: 9_000_000}}, nil
}

func (l *memLeader) MoveJob(ctx context.Context, op fsm.MoveJob, _ bool) (sequencer.ChangeResult, error) {
	if err := l.propose(ctx, &op); err != nil {
		return sequencer.ChangeResult{}, err
	}
	fork, _ := l.machine.Fork()
	job, _ := fork.Job(op.Job)
	return sequencer.ChangeResult{Version: job.Version}, nil
}
