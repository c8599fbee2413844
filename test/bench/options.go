package main

import (
	"flag"
	"fmt"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	only, json, note, from, into, python string
	logStore                             string
	args                                 string // what was set of the flags that matter for figures
	quick                                bool

	tasks, rounds, workers, slots int
	unusedRounds                  int // rounds of the section unused
	pending, kills, million       int
	sustained, idle, commands     int
	during                        time.Duration
}

// minUnusedRounds is how many rounds the section unused has at least, unless -rounds is set: its
// targets are ratios within a few percent of 1.
const minUnusedRounds = 9

// A size is a flag that is smaller with -quick.
type size struct {
	value       *int
	full, quick int
}

// parseFlags parses arguments into the options and the flags that hold them.
func parseFlags(flags *flag.FlagSet, args []string) (options, error) {
	var o options
	flags.StringVar(&o.only, "only", "", "sections to measure, with commas: "+strings.Join(sectionNames(), ", "))
	flags.BoolVar(&o.quick, "quick", false, "smaller sizes and fewer rounds: a few minutes")
	flags.StringVar(&o.json, "json", "", "also write the figures to this file")
	flags.StringVar(&o.note, "note", "", "note about this machine, such as other load")
	flags.StringVar(&o.python, "python", "python3", "Python with the module hyperqueue, to measure it in the section commands")
	flags.StringVar(&o.from, "from", "build/bench.json", "with -into: file written by -json")
	flags.StringVar(&o.into, "into", "", "without measuring: put the figures of -from into this Markdown file")
	flags.StringVar(&o.logStore, "log-store", "", "keep the log of all coordinators in this store, bolt or wal (default bolt; section logstore measures both)")
	var sizes []size
	number := func(value *int, name string, full, quick int, usage string) {
		flags.IntVar(value, name, 0, fmt.Sprintf("%s (default %d; with -quick %d)", usage, full, quick))
		sizes = append(sizes, size{value, full, quick})
	}
	number(&o.tasks, "tasks", 500_000, 20_000, "tasks of each round of throughput")
	number(&o.rounds, "rounds", 5, 2, fmt.Sprintf("rounds of each row; those of the section unused are at least %d if this is not set, without -quick", minUnusedRounds))
	number(&o.workers, "workers", 4, 2, "workers, unless a section sets them")
	number(&o.slots, "slots", 1024, 1024, "slots of each of these")
	number(&o.pending, "pending", 1_000_000, 50_000, "pending tasks in the sections memory and snapshot")
	number(&o.million, "million", 1_000_000, 50_000, "tasks of the large job")
	number(&o.kills, "kills", 7, 1, "leaders to kill while the failover gap is measured")
	number(&o.sustained, "sustained", 5_000_000, 50_000, "tasks one after another")
	number(&o.idle, "idle", 10_000, 500, "maximum number of workers, idle and busy")
	number(&o.commands, "commands", 5000, 300, "commands of each round of the section commands")
	flags.DurationVar(&o.during, "during", 0, "duration of latency measurements at each load (default 10s; with -quick 2s)")
	if err := flags.Parse(args); err != nil {
		return options{}, fmt.Errorf("parsing flags: %w", err)
	}
	o.args = argsOf(flags)
	roundsSet := o.rounds != 0
	for _, s := range sizes {
		if *s.value == 0 {
			*s.value = s.full
			if o.quick {
				*s.value = s.quick
			}
		}
	}
	o.unusedRounds = o.rounds
	if !roundsSet && !o.quick {
		o.unusedRounds = max(o.rounds, minUnusedRounds)
	}
	if o.during == 0 {
		o.during = 10 * time.Second
		if o.quick {
			o.during = 2 * time.Second
		}
	}
	return o, nil
}

// argsOf returns the flags that are set and matter for the figures, as they are typed.
func argsOf(flags *flag.FlagSet) string {
	var args []string
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "json", "note", "python", "from", "into":
		case "quick":
			args = append(args, "-"+f.Name)
		default:
			args = append(args, "-"+f.Name+" "+f.Value.String())
		}
	})
	return strings.Join(args, " ")
}
