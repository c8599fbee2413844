// Command totals prints the sums over the runs of a record, for all time and for the core
// that is checked out, and what the present core still lacks. With -missing it prints only
// the commands that bring that.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dtask/dtask/test/mutants"
	"github.com/dtask/dtask/test/record"
)

// often is how many times a kind of fault must occur to count as tested.
const often = 20

const (
	hour = 60 * 60
	day  = 24 * hour
)

func main() {
	missing := flag.Bool("missing", false, "print the commands of what the present core lacks, one per line")
	flag.Parse()
	path := "test/record/runs.jsonl"
	if flag.NArg() > 0 {
		path = flag.Arg(0)
	}
	if err := run(path, *missing); err != nil {
		fmt.Fprintln(os.Stderr, "totals:", err)
		os.Exit(1)
	}
}

func run(path string, missing bool) error {
	runs, err := record.Read(path)
	if err != nil {
		return err
	}
	root, err := record.Root()
	if err != nil {
		return err
	}
	core, err := record.CoreDigest(root)
	if err != nil {
		return err
	}
	present := record.Of(runs, func(r *record.Run) bool { return r.Core == core })
	goals := goalsOf(present)
	if missing {
		for _, g := range goals {
			if g.has < g.want {
				fmt.Println(g.command(g.want - g.has))
			}
		}
		return nil
	}
	return show(os.Stdout, runs, present, core, goals)
}

// show prints the totals of simulated time and of real processes separately, because
// a fault in a simulation is cheap.
func show(w io.Writer, runs, present []record.Run, core string, goals []goal) error {
	if _, err := fmt.Fprintln(w, "ALL TIME"); err != nil {
		return err
	}
	if err := totals(w, runs); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\nPRESENT CORE %s\n", core); err != nil {
		return err
	}
	if err := totals(w, present); err != nil {
		return err
	}
	for _, g := range goals {
		verdict := "reached"
		if g.has < g.want {
			verdict = "missing"
		}
		if _, err := fmt.Fprintf(w, "  %-44s %9.4g of %7.4g  %s\n", g.name, g.has, g.want, verdict); err != nil {
			return err
		}
	}
	const most = 10 // names
	if names := uncaught(mutants.All(), record.Total(present).Mutants); len(names) > 0 && len(names) <= most {
		if _, err := fmt.Fprintf(w, "  not caught yet: %s\n", strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	for i := range runs {
		if r := &runs[i]; r.Failed != "" {
			if _, err := fmt.Fprintf(w, "failed: %s %s %s: %s\n", r.At.Format("2006-01-02"), r.Commit, r.Failed, cmp.Or(r.Outcome, "no outcome recorded")); err != nil {
				return err
			}
		}
	}
	return nil
}

func totals(w io.Writer, runs []record.Run) error {
	isSimulated := func(r *record.Run) bool { return r.Suite == "simulate" || r.Suite == "cluster" }
	processes := record.Of(runs, func(r *record.Run) bool { return !isSimulated(r) })
	s, r, all := record.Total(record.Of(runs, isSimulated)), record.Total(processes), record.Total(runs)
	segments := record.Total(ofStore(processes, "wal"))
	_, err := fmt.Fprintf(w, `runs                  %d, %.1f h, %d failed
simulated seeds       %d, %d events; %d tasks
virtual cluster-days  %.1f of the coordinators' own code: %.1f of them at the product's pace, %.1f if each is divided by its pace
leader losses         %d in all that is simulated
real processes        %d leaders and %d workers killed, %d tasks
limits                handed over %d times
ticks of schedules    %d, with %d leaders killed whose fire was not acknowledged
power cuts            %d, %d of them with the log in segments
bit flips             %d, %d of them with the log in segments
fault kinds           %d in real processes, %d of them %d times or more; %d simulated
planted bugs caught   %d
lost %d, accepted twice %d, diverged unnoticed %d
`, len(runs), all.Seconds/hour, len(record.Of(runs, func(r *record.Run) bool { return r.Failed != "" })), s.Seeds, s.Events, s.Tasks,
		clusterSeconds(runs)/day, s.ProductSeconds/day, s.PacedSeconds/day, s.LeaderLosses,
		r.LeaderKills, r.WorkerKills, r.Tasks, r.Handovers, r.Ticks, r.Unacknowledged, r.PowerCuts, segments.PowerCuts, r.BitFlips, segments.BitFlips, len(r.Faults), frequent(r.Faults), often, len(s.Faults),
		len(r.Mutants), all.Lost, all.Duplicated, all.Diverged)
	if err != nil {
		return err
	}
	if err := list(w, "fault", r.Faults, "times"); err != nil {
		return err
	}
	return list(w, "fuzz target", r.FuzzSeconds, "s")
}

// A goal is what the runs of one core must add up to before a release.
type goal struct {
	name      string
	has, want float64
	command   func(missing float64) string
}

func goalsOf(runs []record.Run) (goals []goal) {
	for _, store := range []string{"bolt", "wal"} {
		sum := record.Total(ofStore(runs, store))
		goals = append(
			goals,
			goal{"leaders killed, " + store, float64(sum.LeaderKills), 500, func(n float64) string {
				return fmt.Sprintf("make chaos-kills STORE=%s MINUTES=%.0f", store, 1+n/killsPerMinute)
			}},
			goal{"power cuts, " + store, float64(sum.PowerCuts), 60, func(n float64) string {
				return fmt.Sprintf("make powercuts STORE=%s N=%.0f", store, n)
			}},
			goal{"flipped bits, " + store, float64(sum.BitFlips), 250, func(n float64) string {
				return fmt.Sprintf("make bitflips STORE=%s N=%.0f", store, n)
			}},
		)
	}
	all, planted := record.Total(runs), mutants.All()
	soaked := record.Total(record.Of(runs, func(r *record.Run) bool { return r.Suite == "soak" })).Seconds
	return append(
		goals,
		goal{"leaders killed with an unacknowledged fire", float64(all.Unacknowledged), 100, func(n float64) string {
			return fmt.Sprintf("make ticks KILLS=%.0f", 3*n)
		}},
		goal{"limits handed over", float64(all.Handovers), 10_000, func(float64) string { return "make chaos-limits MINUTES=5" }},
		goal{"simulated seeds", float64(all.Seeds), 100_000, func(n float64) string { return fmt.Sprintf("make simulate SEEDS=%.0f", n) }},
		goal{"virtual cluster-days at the product's pace", all.ProductSeconds / day, 10, func(n float64) string {
			return fmt.Sprintf("make simulate-cluster HOURS=%.0f ARGS=-cluster.pace=1", 1+24*n)
		}},
		goal{"virtual cluster-days", clusterSeconds(runs) / day, 90, func(n float64) string { return fmt.Sprintf("make simulate-cluster HOURS=%.0f", 1+24*n) }},
		goal{"planted bugs caught", float64(len(planted) - len(uncaught(planted, all.Mutants))), float64(len(planted)), func(float64) string { return "make mutants" }},
		goal{"minutes of soak", soaked / 60, 30, func(float64) string { return "make soak" }},
	)
}

// uncaught returns the names of the planted bugs that are not among those caught. Bugs
// that were caught under a name that no longer exists don't count.
func uncaught(planted []mutants.Mutant, caught []string) (names []string) {
	for i := range planted {
		if name := planted[i].Name; !slices.Contains(caught, name) {
			names = append(names, name)
		}
	}
	return names
}

// killsPerMinute is a low estimate for make chaos-kills.
const killsPerMinute = 25

func ofStore(runs []record.Run, store string) []record.Run {
	return record.Of(runs, func(r *record.Run) bool { return r.LogStore == store })
}

// clusterSeconds returns the virtual time of whole coordinators.
func clusterSeconds(runs []record.Run) float64 {
	return record.Total(record.Of(runs, func(r *record.Run) bool { return r.Suite == "cluster" })).VirtualSeconds
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
