package worker

import (
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A committed attempt has succeeded, because its output may be published
// already: a later timeout or stop does not change that.
func TestACommittedAttemptSucceedsDespiteALaterStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newAttemptTable(1)
		l.base, l.run = t.Context(), func() {}
		defer l.close()
		l.confirm(time.Now(), defaultFreshness)
		err := l.accept(assignments(work{task: 1, typ: "any", policy: &dtaskv1.TaskPolicy{TimeoutMs: 1000}}), 1)
		if err != nil {
			t.Fatal(err)
		}
		a := l.next(nil, nil)
		if a == nil || !l.commit(a) {
			t.Fatal("the attempt did not start, or was not committed")
		}
		time.Sleep(2 * time.Second)
		l.stop(a.ref, ErrCancelled)
		l.next(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED})
		r := l.take(false)
		if len(r.GetOutcomes().GetTasks()) != 1 || len(r.GetOutcomes().GetDetails()) != 0 {
			t.Errorf("got reports %v, want one success", r)
		}
	})
}
