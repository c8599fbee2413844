// Command bench measures dtask on this machine and prints one table: throughput and
// start latency for tasks, jobs, workers and clusters of several sizes, their cost
// in CPU, log and memory, and the effects of snapshots, restarts and the loss of the
// leader. Each figure has its settings, its spread, and where it makes sense the
// ratio to a yardstick that was measured in the same run.
//
// All programs run as separate processes with synced writes, timeouts and retries,
// as they do for users. make bench builds the programs and runs it:
//
//	make bench                                     all, more than half an hour
//	make bench ARGS=-quick                         all, smaller: a few minutes
//	make bench ARGS='-only throughput,latency'     some sections
//	make bench-docs                                put the last run into docs/performance.md
//	make sizing                                    the section sizing, into docs/tuning.md
//
// Nothing is asserted about the figures. A section fails if its measurement is
// invalid: tasks failed, were lost, or started twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A section measures one thing.
type section struct {
	name string // for -only
	what string
	run  func(context.Context, *bench) error
}

// sections in the order in which they run.
var sections = []section{
	{"throughput", "throughput by size of tasks, CPU and log for each", throughput},
	{"shapes", "throughput by shape of jobs", shapes},
	{"singles", "jobs of one task, beside NATS JetStream", singles},
	{"large", "one job of a million tasks", large},
	{"workers", "throughput by workers and slots", workers},
	{"replicas", "throughput by replicas", replicas},
	{"commands", "real commands, beside xargs and GNU parallel", commands},
	{"latency", "start latency", latency},
	{"memory", "memory of pending tasks", memory},
	{"snapshot", "snapshots and restarts with many pending tasks", snapshots},
	{"backup", "backups with many pending tasks under load", backup},
	{"restore", "from a backup with many tasks and jobs to three voters", restore},
	{"recover", "from a lost majority to three voters", recovery},
	{"explain", "answers about waiting tasks and plans under load", explains},
	{"affinity", "throughput with and without affinity", affinities},
	{"alternatives", "throughput with and without alternatives of resources", alternatives},
	{"queues", "throughput, CPU, log and memory with one queue and with ten of unequal weights", queues},
	{"schedules", "10,000 schedules that are due in one second", schedules},
	{"failover", "loss of the leader under full load", failover},
	{"features", "loss of the leader with many schedules and limits", features},
	{"unused", "cost of the features of scheduling for those who use none, against the build before them", unused},
	{"sustained", "many tasks one after another", sustained},
	{"tls", "cost of TLS, tokens and keys", secured},
	{"handshakes", "loss of the leader of workers with TLS and connections of their own", handshakes},
	{"idle", "cost of idle workers", idle},
	{"model", "cost of a task and of an entry", model},
	{"logstore", "comparison of the log stores", logstore},
	{"parts", "parts of the programs alone", parts},
	{apart, "memory, CPU and sizes of the programs, for docs/tuning.md", sizing},
}

// apart is the section that runs with -only alone: its figures are in docs/tuning.md.
const apart = "sizing"

// A bench is one run.
type bench struct {
	options

	table *table
	tools *tools
}

func main() {
	o, err := parseFlags(flag.CommandLine, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures one section after another. It prints the table at the end, also with
// the figures measured before a failure.
func run(ctx context.Context, o options) error {
	if o.into != "" {
		return document(o.from, o.into)
	}
	if err := o.useLogStore(); err != nil {
		return err
	}
	chosen, err := choose(o.only)
	if err != nil {
		return err
	}
	b := &bench{options: o, table: &table{Machine: thisMachine(o.note), Began: time.Now().UTC().Truncate(time.Second), Quick: o.quick, Args: o.args, Partial: o.only != ""}}
	if b.tools, err = newTools(); err != nil {
		return err
	}
	began := time.Now()
	for i, s := range append([]section{{yardstickSection, "limits of this machine", yardsticks}}, chosen...) {
		fmt.Fprintf(os.Stderr, "%6s  measuring: %s (%d of %d)\n", time.Since(began).Round(time.Second), s.what, i+1, len(chosen)+1)
		b.table.section = s.name
		if err = s.run(ctx, b); err != nil {
			err = fmt.Errorf("%s: %w", s.name, err)
			b.table.Partial, b.table.Failed = true, s.name // documents keep the figures of what was not measured
			break
		}
	}
	fmt.Fprintf(os.Stderr, "%6s  done\n", time.Since(began).Round(time.Second))
	return errors.Join(err, b.table.print(os.Stdout), b.table.save(o.json), b.tools.remove())
}

// choose returns the requested sections, in their own order.
func choose(only string) ([]section, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return s.name == apart }), nil
	}
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(only, ",") {
		wanted[strings.TrimSpace(name)] = true
	}
	var chosen []section
	for _, s := range sections {
		if wanted[s.name] {
			chosen = append(chosen, s)
			delete(wanted, s.name)
		}
	}
	for name := range wanted {
		return nil, fmt.Errorf("unknown section %q: must be one of %s", name, strings.Join(sectionNames(), ", "))
	}
	return chosen, nil
}

func sectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}
