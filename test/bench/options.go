package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	only, json, note, from, into string
	logStore                     string
	quick                        bool

	tasks, rounds, workers, slots int
	pending, kills, million       int
	sustained, idle               int
	during                        time.Duration
}

// A size is a flag that is smaller with -quick.
type size struct {
	value       *int
	full, quick int
}

func parseFlags() options {
	var o options
	flag.StringVar(&o.only, "only", "", "sections to measure, with commas: "+strings.Join(sectionNames(), ", "))
	flag.BoolVar(&o.quick, "quick", false, "smaller and fewer of all: a few minutes")
	flag.StringVar(&o.json, "json", "", "file that the figures are written to as well")
	flag.StringVar(&o.note, "note", "", "what else there is to say of this machine: that others use it, too")
	flag.StringVar(&o.from, "from", "build/bench.json", "with -into: the file that -json wrote")
	flag.StringVar(&o.into, "into", "", "measure nothing: put the figures of -from into this Markdown file")
	flag.StringVar(&o.logStore, "log-store", "", "keep the log of all coordinators in this store, bolt or wal (default bolt; section logstore measures both)")
	var sizes []size
	number := func(value *int, name string, full, quick int, usage string) {
		flag.IntVar(value, name, 0, fmt.Sprintf("%s (default %d; with -quick %d)", usage, full, quick))
		sizes = append(sizes, size{value, full, quick})
	}
	number(&o.tasks, "tasks", 500_000, 20_000, "tasks of each round of throughput")
	number(&o.rounds, "rounds", 5, 2, "rounds of each row")
	number(&o.workers, "workers", 4, 2, "workers, where nothing else is said")
	number(&o.slots, "slots", 1024, 1024, "slots of each of these")
	number(&o.pending, "pending", 1_000_000, 50_000, "tasks that wait while memory, snapshots and restarts are measured")
	number(&o.million, "million", 1_000_000, 50_000, "tasks of the one large job")
	number(&o.kills, "kills", 7, 1, "leaders to kill while the failover gap is measured")
	number(&o.sustained, "sustained", 5_000_000, 50_000, "tasks one after another")
	number(&o.idle, "idle", 10_000, 500, "the most workers, idle and at work")
	flag.DurationVar(&o.during, "during", 0, "how long latencies are taken at each load (default 10s; with -quick 2s)")
	flag.Parse()
	for _, s := range sizes {
		if *s.value == 0 {
			*s.value = s.full
			if o.quick {
				*s.value = s.quick
			}
		}
	}
	if o.during == 0 {
		o.during = 10 * time.Second
		if o.quick {
			o.during = 2 * time.Second
		}
	}
	return o
}
