package api

import (
	"context"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

func (l *memLeader) SetLimit(ctx context.Context, name string, to fsm.LimitSettings, version uint32, by string) (*fsm.NamedLimit, error) {
	err := l.propose(ctx, &fsm.SetLimit{Name: name, LimitSettings: to, By: by, IfVersion: version, AtMS: max(l.nowMS, 1)})
	fork, _ := l.machine.Fork()
	return fork.NamedLimit(name), err
}

func (l *memLeader) DeleteLimit(ctx context.Context, name string, version uint32) error {
	return l.propose(ctx, &fsm.DeleteLimit{Name: name, IfVersion: version})
}

func (l *memLeader) LimitLoads(context.Context, string) ([]sequencer.LimitLoad, error) {
	return []sequencer.LimitLoad{{LimitLoad: scheduler.LimitLoad{Name: "db", Running: 2, Held: 2, Waiting: 7}}}, nil
}
