// Command totals prints the sums over the runs of a record.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/dtask/dtask/test/record"
)

// often is how many times a kind of fault must occur to count as tested.
const often = 20

func main() {
	path := "test/record/runs.jsonl"
	if len(os.Args) > 1 {
		path = os.Args[1]
	}
	runs, err := record.Read(path)
	if err == nil {
		err = show(os.Stdout, runs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		os.Exit(1)
	}
}

// show prints the totals of simulated time and of real processes separately, because
// a fault in a simulation is cheap.
func show(w io.Writer, runs []record.Run) error {
	var simulated, processes []record.Run
	for _, r := range runs {
		if r.Suite == "simulate" || r.Suite == "cluster" {
			simulated = append(simulated, r)
		} else {
			processes = append(processes, r)
		}
	}
	s, r, all := record.Total(simulated), record.Total(processes), record.Total(runs)
	inSegments := record.Total(record.Of(processes, "wal"))
	const hour, day = 60 * 60, 24 * 60 * 60
	_, err := fmt.Fprintf(w, `runs                  %d, %.1f h
simulated seeds       %d, %d events; %d tasks
virtual cluster-days  %.1f of the coordinators' own code: %.1f of them at the product's pace, %.1f if each is divided by its pace
leader losses         %d in all that is simulated
real processes        %d leaders and %d workers killed, %d tasks
power cuts            %d, %d of them with the log in segments
bit flips             %d, %d of them with the log in segments
fault kinds           %d in real processes, %d of them %d times or more; %d simulated
planted bugs caught   %d
lost %d, accepted twice %d, diverged unnoticed %d
`, len(runs), all.Seconds/hour, s.Seeds, s.Events, s.Tasks, clusterSeconds(runs)/day, s.ProductSeconds/day, s.PacedSeconds/day, s.LeaderLosses,
		r.LeaderKills, r.WorkerKills, r.Tasks, r.PowerCuts, inSegments.PowerCuts, r.BitFlips, inSegments.BitFlips, len(r.Faults), frequent(r.Faults), often, len(s.Faults),
		len(r.Mutants), all.Lost, all.Duplicated, all.Diverged)
	if err != nil {
		return err
	}
	if err := list(w, "fault", r.Faults, "times"); err != nil {
		return err
	}
	return list(w, "fuzz target", r.FuzzSeconds, "s")
}

// clusterSeconds returns the virtual time of whole coordinators.
func clusterSeconds(runs []record.Run) (seconds float64) {
	for i := range runs {
		if runs[i].Suite == "cluster" {
			seconds += runs[i].VirtualSeconds
		}
	}
	return seconds
}

// frequent counts what occurred often.
func frequent(counts map[string]int) (n int) {
	for _, times := range counts {
		if times >= often {
			n++
		}
	}
	return n
}

// list prints counts by name, F9 before F10.
func list(w io.Writer, what string, counts map[string]int, unit string) error {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, name := range names {
		if _, err := fmt.Fprintf(w, "  %s %-32s %d %s\n", what, name, counts[name], unit); err != nil {
			return err
		}
	}
	return nil
}
