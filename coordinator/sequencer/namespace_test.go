package sequencer

import (
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
)

// A worker whose labels name no namespace serves all of them. Jobs before there were
// namespaces, and those of the default one, have none in their header.
func TestATaskIsPlacedOnlyOnAWorkerThatServesItsNamespace(t *testing.T) {
	t.Parallel()
	serves := func(names ...string) (list []fsm.Label) {
		for _, name := range names {
			list = append(list, fsm.Label{Key: fsm.NamespaceLabel, Value: name})
		}
		return list
	}
	s := scheduler.New(1)
	for i, labels := range [][]fsm.Label{nil, serves("default"), serves("etl"), serves("default", "etl")} {
		s.AddWorker(scheduler.WorkerID(i+1), capacity(1, nil, labels))
	}
	p := &policyTable{sched: s}
	for namespace, want := range map[string][]bool{
		"":    {true, true, false, true},
		"etl": {true, false, true, true},
		"ml":  {true, false, false, false},
	} {
		x := p.parse(fsm.New(), &dtaskv1.JobHeader{Namespace: namespace}, &dtaskv1.TaskPolicy{})
		for i, fit := range s.View(scheduler.TaskRef{}, x.class, scheduler.Normal, 0, nil).Workers() {
			if fit.Fits() != want[i] {
				t.Errorf("namespace %q: worker %d: got %v, want %v", namespace, fit.Worker, fit.Obstacles, want[i])
			}
		}
	}
}
