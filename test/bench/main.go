// Command bench measures dtask on this machine and prints one table: how many
// tasks a second it brings to their end, what that costs in log entries and
// synced writes, how much memory a pending task takes, and how long nothing is
// completed when the leader is killed. Each figure comes with the settings, its
// spread, and where it makes sense the ratio to a yardstick that was measured in
// the same run.
//
// Everything runs as processes of their own with synced writes, time-outs and
// retries, as it would for a user. make bench builds the programs and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// options are the flags.
type options struct {
	tasks   int
	rounds  int
	workers int
	slots   int
	pending int
	kills   int
}

func main() {
	var o options
	flag.IntVar(&o.tasks, "tasks", 200_000, "tasks of each round of throughput")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of throughput")
	flag.IntVar(&o.workers, "workers", 2, "workers")
	flag.IntVar(&o.slots, "slots", 1024, "slots of each worker")
	flag.IntVar(&o.pending, "pending", 100_000, "tasks that wait while memory is measured")
	flag.IntVar(&o.kills, "kills", 5, "leaders to kill while the failover gap is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures one thing after another and prints the table at the end.
func run(ctx context.Context, o options) error {
	t := &table{out: os.Stdout}
	for _, part := range []struct {
		what string
		run  func(context.Context, options, *table) error
	}{
		{"yardsticks", yardsticks},
		{"throughput", throughput},
		{"memory", memory},
		{"failover", failover},
		{"the state machine alone", stateMachine},
	} {
		fmt.Fprintf(os.Stderr, "measuring: %s\n", part.what)
		if err := part.run(ctx, o, t); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return t.print()
}
