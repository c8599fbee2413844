package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

// packages have the benchmarks of the table: the replicated state, the scheduler and the
// times of schedules, without a log, a network or a disk.
var packages = []string{"fsm", "scheduler", "scheduler/forecast", "internal/calendar"}

// partTargets are the targets of figures, by their names.
var partTargets = map[string]string{
	"internal/calendar: NextOfTenThousandSchedules": "at most 100 ms",
	"internal/calendar: RarestNext":                 "at most 1 ms",
}

// parts runs benchmarks of parts of the programs.
func parts(ctx context.Context, b *bench) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	duration := "0.5s"
	if b.quick {
		duration = "0.05s"
	}
	for _, name := range packages {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchtime", duration, "-count", strconv.Itoa(b.rounds), "./"+name)
		cmd.Dir = root
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("running benchmarks: %w\n%s", err, out)
		}
		b.parts(name, parseBenchmarks(out))
	}
	return nil
}

// parts adds a row for each figure, in order of first occurrence.
func (b *bench) parts(name string, list []benchmark) {
	type figure struct{ name, unit string }
	var order []figure
	measured := make(map[figure][]float64)
	for _, one := range list {
		f := figure{one.name, one.unit}
		if measured[f] == nil {
			order = append(order, f)
		}
		measured[f] = append(measured[f], one.value)
	}
	for _, f := range order {
		what, setting := name+": "+f.name, "alone, on one core"
		if target := partTargets[what]; target != "" {
			setting += "; target: " + target
		}
		b.table.add(what, f.unit, setting, measured[f]...)
	}
}

// A benchmark is one figure of a Go benchmark.
type benchmark struct {
	name, unit string
	value      float64
}

// parseBenchmarks parses each line of go test -bench: the figures that the benchmark
// reports itself, or its time if it reports none.
func parseBenchmarks(out []byte) []benchmark {
	var list []benchmark
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
		var own []benchmark
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if unit := fields[i+1]; err == nil && (!strings.HasSuffix(unit, "/op") || i == 2) {
				own = append(own, benchmark{name: name, unit: unit, value: value})
			}
		}
		if len(own) > 1 {
			own = own[1:]
		}
		list = append(list, own...)
	}
	return list
}
