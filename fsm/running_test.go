package fsm

import "testing"

func TestALoggedStartCountsAsRunningUntilItsAttemptEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h HeldAttempt) Op{
		"completed": func(h HeldAttempt) Op { return complete(h) },
		"failed":    func(h HeldAttempt) Op { return failed(h, NextDead) },
		"lost":      func(h HeldAttempt) Op { return &Lose{Items: []HeldAttempt{h}} },
		"cancelled": func(h HeldAttempt) Op { return &CancelTask{Task: h.TaskRef, Reason: "r"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, h := running(t, 1)
			want := func(when string, runs bool) {
				t.Helper()
				n := map[bool]uint32{true: 1}[runs]
				for where, s := range map[string]*State{"state": w.s, "restored state": restored(t, snapshotOf(t, w.s))} {
					job, _ := s.Job(1)
					_, counted := s.CountStates(1, 0, job.Total)
					if got := s.AttemptState(h.TaskRef); got.Runs != runs || job.Running != n || counted != n {
						t.Errorf("%s, %s: got %+v, %d running, %d counted; want %d", when, where, got, job.Running, counted, n)
					}
				}
			}
			want("assigned", false)
			w.do(&RecordStart{Items: []HeldAttempt{h}}).do(&RecordStart{Items: []HeldAttempt{h}})
			want("started", true)
			w.do(end(h))
			want(name, false)
			if r := w.try(&Revive{Job: 1}); r == Accepted {
				w.assign(0, 1)
				want("assigned again", false)
			}
		})
	}
}
