package sequencer

import (
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// A worker with one of two secrets, and a task that requires the label of a secret as if
// it were another one, are no match.
func TestATaskIsPlacedOnlyOnAWorkerWithAllOfItsSecrets(t *testing.T) {
	t.Parallel()
	secrets := func(names ...string) (list []fsm.Label) {
		for _, name := range names {
			list = append(list, fsm.Label{Key: fsm.SecretLabel, Value: name})
		}
		return list
	}
	s := scheduler.New(1)
	for i, labels := range [][]fsm.Label{nil, secrets("db"), secrets("db", "key")} {
		s.AddWorker(scheduler.WorkerID(i+1), capacity(1, nil, labels))
	}
	for name, c := range map[string]struct {
		policy *dtaskv1.TaskPolicy
		fit    []bool
	}{
		"no secret":    {&dtaskv1.TaskPolicy{}, []bool{true, true, true}},
		"one":          {&dtaskv1.TaskPolicy{Secrets: []string{"db"}}, []bool{false, true, true}},
		"two":          {&dtaskv1.TaskPolicy{Secrets: []string{"key", "db"}}, []bool{false, false, true}},
		"unknown":      {&dtaskv1.TaskPolicy{Secrets: []string{"db", "other"}}, []bool{false, false, false}},
		"as its label": {&dtaskv1.TaskPolicy{Require: map[string]string{fsm.SecretLabel: "db"}}, []bool{false, false, false}},
	} {
		for i, fit := range s.View(scheduler.TaskRef{}, s.Class(demand(c.policy)), scheduler.Normal, 0, nil).Workers() {
			if fit.Fits() != c.fit[i] {
				t.Errorf("%s: worker %d: got %v, want %v", name, fit.Worker, fit.Obstacles, c.fit[i])
			}
		}
	}
}
