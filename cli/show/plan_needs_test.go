package show

import (
	"testing"

	"github.com/dtask/dtask/internal/document"
)

func TestAlternativesOfAPlanAreToldApart(t *testing.T) {
	t.Parallel()
	c := document.PlanClass{
		Type: "command", Resources: map[string]int64{"gpu": 1000, "cpu": 500}, Require: map[string]string{"zone": "eu"},
		Alternatives: []map[string]int64{{"cpu": 8000}},
	}
	if got, want := classNeeds(&c), "command, 0.5 cpu and 1 gpu or 8 cpu, zone=eu"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.Alternatives = nil
	if got, want := classNeeds(&c), "command, 0.5 cpu, 1 gpu, zone=eu"; got != want {
		t.Errorf("without alternatives: got %q, want %q", got, want)
	}
}

func TestThePlanShowsSizesInUnits(t *testing.T) {
	t.Parallel()
	c := document.PlanClass{Type: "command", Resources: map[string]int64{"disk": 512_000, "memory": 9 << 40 * 1000, "gpu": 1000}}
	if got, want := classNeeds(&c), "command, 512 B disk, 1 gpu, 9.0 TiB memory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
