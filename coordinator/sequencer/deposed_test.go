package sequencer_test

import (
	"testing"
	"testing/synctest"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// A deposed leader that doesn't know it yet reads an old state: a job that is
// cancelled there may have been retried, an unknown one may exist, and a key
// may belong to something else.
func TestADeposedLeaderDoesNotAnswerThatTheWorkIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		log := &losingLog{machine: c.machine, observe: func(fsm.Entry, bool) func(fsm.Applied) { return func(fsm.Applied) {} }}
		c.config = func(cfg *sequencer.Config) { cfg.Log = log }
		s, end := c.lead()
		job := spec{key: "k", n: 1}.submission()
		made, err := s.Submit(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelJob(t.Context(), made.ID, "enough"); err != nil {
			t.Fatal(err)
		}
		log.mu.Lock()
		log.slow = true // another replica leads, and no entry of this one is committed
		log.mu.Unlock()
		asks := map[string]func() error{
			"cancelled already": func() error { _, err := s.CancelJob(t.Context(), made.ID, "again"); return err },
			"no such job":       func() error { _, err := s.Revive(t.Context(), fsm.Revive{Job: 99}, false); return err },
			"no dead letters":   func() error { _, err := s.Purge(t.Context(), fsm.Purge{Job: made.ID}, false); return err },
			"key is known":      func() error { _, err := s.Submit(t.Context(), job); return err },
		}
		answers := make(map[string]chan error)
		for name, ask := range asks {
			answer := make(chan error, 1)
			answers[name] = answer
			go func() { answer <- ask() }()
		}
		synctest.Wait()
		for name, answer := range answers {
			select {
			case err := <-answer:
				t.Errorf("%s: answered with %v before a commit", name, err)
			default:
			}
		}
		log.lose(func() error { return errUnknown })
		for name, answer := range answers {
			select {
			case err := <-answer:
				if err == nil || isRejected(err, fsm.JobNotFound) || isRejected(err, fsm.WrongState) {
					t.Errorf("%s: answered with %v by a deposed leader", name, err)
				}
			default:
			}
		}
		synctest.Wait()
		_ = end()
	})
}
