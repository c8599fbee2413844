package nemesis

import (
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// A worker whose session had just ended could not open another one, and was marked down.
func TestALeaderWithoutDescriptorsHarmsTheWorkers(t *testing.T) {
	t.Parallel()
	p := cluster.NewProcess("n1", t.TempDir(), "/bin/sleep", []string{"1000"}, nil)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Kill() }()
	w := &World{shared: &shared{taken: make(map[string]string)}}
	before, err := ledger.Now()
	if err != nil {
		t.Fatal(err)
	}
	if err := fewDescriptors(t.Context(), w, &cluster.Coordinator{Process: p}, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.Harms(), func(h ledger.Harm) bool { return h.Worker == "" && h.From >= before && h.Until > h.From }) {
		t.Errorf("the harms are %v", w.Harms())
	}
}
