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

// stateMachine runs the benchmarks of the replicated state, without a log, a
// network or a disk.
func stateMachine(ctx context.Context, _ options, t *table) error {
	root, err := cluster.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "-benchtime", "0.2s", "./fsm")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running the benchmarks: %w\n%s", err, out)
	}
	for _, b := range parseBenchmarks(out) {
		t.add("fsm: "+b.name, b.unit, "in one process", b.value)
	}
	return nil
}

// A benchmark is one figure of a Go benchmark.
type benchmark struct {
	name, unit string
	value      float64
}

// parseBenchmarks reads each line of go test -bench: the figures that the
// benchmark reports itself, or its time if it reports none.
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
