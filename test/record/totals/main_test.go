package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/mutants"
	"github.com/dtask/dtask/test/record"
)

func TestOnlyPlantedBugsThatExistCountAsCaught(t *testing.T) {
	t.Parallel()
	var names []string
	for _, m := range mutants.All() {
		names = append(names, m.Name)
	}
	renamed := slices.Concat(names[1:], []string{"an-earlier-name"})
	for _, c := range []struct {
		caught []string
		want   int
	}{{names, len(names)}, {renamed, len(names) - 1}, {nil, 0}} {
		goals := goalsOf([]record.Run{{Suite: "mutants", Mutants: c.caught}})
		i := slices.IndexFunc(goals, func(g goal) bool { return g.name == "planted bugs caught" })
		if got := goals[i]; int(got.has) != c.want || int(got.want) != len(names) {
			t.Errorf("got %v of %v, want %d of %d", got.has, got.want, c.want, len(names))
		}
	}
	var text strings.Builder
	runs := []record.Run{{Suite: "mutants", Mutants: renamed}}
	if err := show(&text, runs, runs, "x", goalsOf(runs)); err != nil {
		t.Fatal(err)
	}
	if want := "not caught yet: " + names[0] + "\n"; !strings.Contains(text.String(), want) {
		t.Errorf("got\n%s\nwant %q", text.String(), want)
	}
}

func TestTheTotalsHaveTheHandoversOfLimitsAndTheTicks(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	runs := []record.Run{{Suite: "chaos", Handovers: 10_000}, {Suite: "ticks", Ticks: 600, Unacknowledged: 150}, {Suite: "chaos", Handovers: 234}}
	if err := show(&text, runs, nil, "x", nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"handed over 10234 times\n", "ticks of schedules    600, with 150 leaders killed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got\n%s\nwant %q", text.String(), want)
		}
	}
}
