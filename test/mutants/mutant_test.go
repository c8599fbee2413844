package mutants_test

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/dtask/dtask/test/mutants"
)

const root = "../.."

func TestEveryPlantedBugStillApplies(t *testing.T) {
	t.Parallel()
	all := mutants.All()
	if len(all) < 25 {
		t.Errorf("got %d planted bugs, want at least 25", len(all))
	}
	names := map[string]bool{}
	for i := range all {
		m := &all[i]
		if names[m.Name] || len(m.Caught) == 0 {
			t.Errorf("%s: duplicate, or without a checker", m.Name)
		}
		names[m.Name] = true
		files, err := m.Mutate(root)
		if err != nil {
			t.Error(err)
		}
		for name, text := range files {
			if _, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}
