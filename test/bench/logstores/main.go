// Command logstores compares stores of the Raft log in the whole path: three
// coordinators, workers and a client in this process bring no-op tasks to their
// end, now with the log in raft-boltdb as the product has it, now with the log in
// raft-wal. It is a module of its own, so that raft-wal is no part of the
// product's.
//
//	cd test/bench/logstores && go run . -pairs 7
//
// The two are run in turn, and each pair is compared with itself, since a machine
// drifts more within an hour than stores differ. It prints the two medians and the
// median of the ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
)

func main() {
	var o options
	flag.IntVar(&o.pairs, "pairs", 7, "how often each store is run")
	flag.IntVar(&o.tasks, "tasks", 200_000, "tasks of a run")
	flag.IntVar(&o.payload, "payload", 32, "bytes of payload of a task")
	flag.IntVar(&o.perJob, "tasks-per-job", 10_000, "tasks of a job")
	flag.IntVar(&o.probes, "probes", 200, "single tasks, one after another, that latency is taken from")
	flag.StringVar(&o.profiles, "profiles", "", "directory for a CPU profile of each run (empty = none)")
	flag.StringVar(&o.dir, "dir", "", "directory for the logs (empty = a temporary one)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := compare(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "logstores:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	pairs, tasks, payload, perJob, probes int
	dir, profiles                         string
}

// A figure is one of a result.
type figure struct {
	name string
	of   func(result) float64
}

var figures = []figure{
	{"tasks/s", func(r result) float64 { return r.perSecond }},
	{"CPU µs/task, all processes", func(r result) float64 { return r.cpuMicros }},
	{"one task, from the call to its end, ms", func(r result) float64 { return r.latencyMS }},
}

func compare(ctx context.Context, o options) error {
	results := make(map[string][]result)
	for i := range o.pairs {
		pair := []string{storeBolt, storeWAL}
		if i%2 == 1 {
			slices.Reverse(pair) // what comes second may find a warmer or a fuller disk
		}
		for _, name := range pair {
			r, err := measure(ctx, o, name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(os.Stderr, "pair %d, %s: %+v\n", i+1, name, r)
			results[name] = append(results[name], r)
		}
	}
	return report(o, results)
}

func report(o options, results map[string][]result) error {
	fmt.Printf("%d tasks of %d B in jobs of %d, %d pairs\n", o.tasks, o.payload, o.perJob, o.pairs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintf(w, "WHAT\t%s\t%s\tRATIO\tMIN\tMAX\n", storeBolt, storeWAL)
	for _, f := range figures {
		var bolt, wal, ratio []float64
		for i := range results[storeBolt] {
			x, y := f.of(results[storeBolt][i]), f.of(results[storeWAL][i])
			bolt, wal, ratio = append(bolt, x), append(wal, y), append(ratio, y/x)
		}
		_, failed := fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\n", f.name, median(bolt), median(wal), median(ratio), slices.Min(ratio), slices.Max(ratio))
		err = errors.Join(err, failed)
	}
	return errors.Join(err, w.Flush())
}

// median is the middle of some values, the upper one of an even number.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
