package sequencer

import (
	"bytes"
	"context"
	"errors"

	"github.com/dtask/dtask/fsm"
)

// PlanChangesNothing makes a plan on a fork of the state, as every replica does, and returns an
// error if that fails, or changes the state, the scheduler, the timers or the entry.
func (s *Sequencer) PlanChangesNothing(ctx context.Context, plan func(*fsm.State) error) error {
	q := &query{done: make(chan struct{}), f: func(b *batch) error {
		st, _ := s.cfg.Machine.Fork()
		state, err := snapshotOf(st)
		if err != nil {
			return err
		}
		before := s.deepDigest(b)
		if err := plan(st); err != nil {
			return err
		}
		if after := s.deepDigest(b); before != after {
			return errors.New("a plan has changed the scheduler, the timers or the entry")
		}
		if now, err := snapshotOf(st); err != nil || !bytes.Equal(now, state) {
			return errors.Join(errors.New("a plan has changed the state"), err)
		}
		return nil
	}}
	if !s.ask(ctx, q) {
		return nil // the term has ended
	}
	return q.err
}

func snapshotOf(s *fsm.State) ([]byte, error) {
	var out bytes.Buffer
	err := s.WriteSnapshot(&out)
	return out.Bytes(), err
}
