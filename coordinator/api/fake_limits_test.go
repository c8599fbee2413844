package api

import (
	"context"
	"slices"

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

// LimitLoads has two holders, of the first tasks of the first two jobs.
func (l *memLeader) LimitLoads(_ context.Context, holdersOf string) ([]sequencer.LimitLoad, error) {
	if l.limitLoads != nil {
		return slices.Clone(l.limitLoads), nil
	}
	loads := []sequencer.LimitLoad{
		{LimitLoad: scheduler.LimitLoad{Name: "db", Running: 2, Held: 2, Rated: true, Tokens: 5, Waiting: 7}},
		{LimitLoad: scheduler.LimitLoad{Name: "tenant/acme", Running: 1, Held: 1}},
		{LimitLoad: scheduler.LimitLoad{Name: "tenant/initech", Running: 1, Waiting: 3}},
	}
	if holdersOf == "db" {
		loads[0].Holders = []fsm.TaskRef{{Job: 1}, {Job: 2}}
	}
	return loads, nil
}
