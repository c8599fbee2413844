package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// Quantities that are measured per process.
const (
	resident   = "resident memory, MiB"
	openFiles  = "open files"
	threads    = "threads"
	goroutines = "goroutines"
	onDisk     = "on disk, MiB"
)

// slack is how much a quantity may grow between the warm-up and the end, because
// measurements vary: an absolute amount and a share.
var slack = map[string]struct{ least, share float64 }{
	resident: {16, 0.15}, openFiles: {8, 0}, threads: {8, 0.25}, goroutines: {16, 0.1}, onDisk: {16, 0.15},
}

// gauge is one quantity of one process.
type gauge struct{ process, what string }

// gauges holds the measurements of all processes over time.
type gauges struct {
	at   []time.Duration // of the measurements
	seen map[gauge][]float64
}

func newGauges() *gauges { return &gauges{seen: make(map[gauge][]float64)} }

// sample measures all processes of a cluster once.
func (g *gauges) sample(ctx context.Context, c *cluster.Cluster, at time.Duration) error {
	g.at = append(g.at, at)
	var errs []error
	for _, n := range c.Coordinators() {
		figures, err := n.Metrics(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			figures, err = n.Metrics(ctx) // the machine was busy
		}
		g.add(n.Name, goroutines, figures["go_goroutines"])
		errs = append(errs, err, g.process(n.Process, n.DataDir))
	}
	for _, k := range c.Workers() {
		errs = append(errs, g.process(k.Process, k.Dir))
	}
	return errors.Join(errs...)
}

func (g *gauges) add(process, what string, value float64) {
	g.seen[gauge{process, what}] = append(g.seen[gauge{process, what}], value)
}

// process measures the resources of a process, and the size of its data directory.
func (g *gauges) process(p *cluster.Process, dir string) error {
	about, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return fmt.Errorf("measuring %s: %w", p.Name, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		return fmt.Errorf("measuring %s: %w", p.Name, err)
	}
	g.add(p.Name, resident, statusField(about, "VmRSS")/1024)
	g.add(p.Name, threads, statusField(about, "Threads"))
	g.add(p.Name, openFiles, float64(len(files)))
	bytes := int64(0)
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err == nil && e.Type().IsRegular() {
			if about, err := e.Info(); err == nil {
				bytes += about.Size()
			}
		}
		return err
	})
	g.add(p.Name, onDisk, float64(bytes)/(1<<20))
	if err != nil {
		return fmt.Errorf("reading the directory of %s: %w", p.Name, err)
	}
	return nil
}

// statusField reads a number from /proc/PID/status.
func statusField(about []byte, name string) float64 {
	for line := range strings.Lines(string(about)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				value, _ := strconv.ParseFloat(words[0], 64) // written by the kernel
				return value
			}
		}
	}
	return 0
}

// judge compares the minimum of each quantity in the first third after the warm-up
// with that of the last third, so that temporary amounts such as garbage don't count.
// It returns a table and the lines of the quantities that have grown.
func (g *gauges) judge(warm time.Duration) (table string, grown []string) {
	from, _ := slices.BinarySearch(g.at, warm)
	third := (len(g.at) - from) / 3
	if third == 0 {
		return "", []string{"no measurements after the warm-up"}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| process | quantity | after %s | at the end | maximum |\n|---|---|---|---|---|\n", warm.Round(time.Second))
	names := make([]gauge, 0, len(g.seen))
	for name := range g.seen {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b gauge) int {
		return strings.Compare(a.what+a.process, b.what+b.process)
	})
	for _, name := range names {
		seen := g.seen[name]
		before, after := slices.Min(seen[from:from+third]), slices.Min(seen[len(seen)-third:])
		line := fmt.Sprintf("| %s | %s | %.0f | %.0f | %.0f |", name.process, name.what, before, after, slices.Max(seen))
		fmt.Fprintln(&b, line)
		if s := slack[name.what]; after > before*(1+s.share)+s.least {
			grown = append(grown, line)
		}
	}
	return b.String(), grown
}

func TestLeaksAreFoundAndFluctuationsAreNot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what  string
		at    func(i int) float64
		grows bool
	}{
		"flat":                      {resident, func(int) float64 { return 50 }, false},
		"a sawtooth":                {resident, func(i int) float64 { return 50 + float64(i%10)*20 }, false},
		"a leak under a sawtooth":   {resident, func(i int) float64 { return 50 + float64(i%10)*20 + float64(i)/2 }, true},
		"growth during the warm-up": {onDisk, func(i int) float64 { return min(float64(i), 80) }, false},
		"a file each second":        {openFiles, func(i int) float64 { return 20 + float64(i)/2 }, true},
		"a leaked goroutine":        {goroutines, func(i int) float64 { return 100 + float64(i) }, true},
	} {
		g := newGauges()
		for i := range 200 {
			g.at = append(g.at, time.Duration(i)*time.Second)
			g.add("n1", c.what, c.at(i))
		}
		table, grown := g.judge(100 * time.Second)
		if (len(grown) > 0) != c.grows || !strings.Contains(table, "| n1 | "+c.what) {
			t.Errorf("%s: got grown %q of\n%s", name, grown, table)
		}
	}
	if _, grown := newGauges().judge(time.Minute); len(grown) == 0 {
		t.Error("a soak without measurements passes")
	}
}
