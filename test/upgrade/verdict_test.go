package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// A verdict is what one run has shown.
type verdict struct {
	jobs, tasks        int
	ceiling, asked     int     // tasks per second; ceiling 0: not measured
	reached, completed float64 // likewise
	slowest            time.Duration
	lost, twice        int
	retries            uint64
	equal              bool // the digests
	longest            gap
	load               string // of the machine before the run
}

// rows shows verdicts side by side.
func rows(all []verdict) [][]string {
	show := func(name string, value func(v *verdict) string) []string {
		row := []string{name}
		for i := range all {
			row = append(row, value(&all[i]))
		}
		return row
	}
	run := []string{""}
	for i := range all {
		run = append(run, fmt.Sprintf("run %d", i+1))
	}
	number := func(name string, value func(v *verdict) float64) []string {
		return show(name, func(v *verdict) string { return fmt.Sprintf("%.0f", value(v)) })
	}
	return [][]string{
		run,
		show("load of the machine before", func(v *verdict) string { return v.load }),
		number("ceiling of the base build, tasks/s", func(v *verdict) float64 { return float64(v.ceiling) }),
		number("asked, tasks/s", func(v *verdict) float64 { return float64(v.asked) }),
		number("reached (submitted), tasks/s", func(v *verdict) float64 { return v.reached }),
		number("completed, tasks/s", func(v *verdict) float64 { return v.completed }),
		number("jobs", func(v *verdict) float64 { return float64(v.jobs) }),
		number("tasks", func(v *verdict) float64 { return float64(v.tasks) }),
		number("lost", func(v *verdict) float64 { return float64(v.lost) }),
		number("run twice", func(v *verdict) float64 { return float64(v.twice) }),
		number("retries", func(v *verdict) float64 { return float64(v.retries) }),
		show("digests equal", func(v *verdict) string { return fmt.Sprint(v.equal) }),
		show("longest time without a completion", func(v *verdict) string { return milliseconds(v.longest.lasts) }),
		show("  in", func(v *verdict) string { return v.longest.step }),
		show("slowest submission", func(v *verdict) string { return milliseconds(v.slowest) }),
	}
}

// machineLoad returns the load averages of this machine; empty if unknown.
func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return ""
}

// judge ends the load and checks what was promised. harms are those of faults, if any.
func (u *upgrade) judge(l *load, harms []ledger.Harm) verdict {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), judgeTime)
	defer cancel()
	clustertest.Must(u.t, l.stop())
	v := verdict{jobs: len(l.ids), reached: l.reached(), slowest: l.slowest, asked: u.asked, ceiling: u.measured, load: u.machine}
	jobs, err := u.check(ctx, l, harms, &v)
	clustertest.Must(u.t, err)
	for _, j := range jobs {
		if j.State != "completed" {
			u.t.Errorf("job %s is %s", j.ID, j.State)
		}
	}
	err = u.AwaitEqual(u.t.Context())
	v.equal = err == nil
	if err != nil && !errors.Is(err, cluster.ErrDifferent) {
		u.t.Error(err)
	}
	return v
}

// check compares the jobs of a load with the ledger.
func (u *upgrade) check(ctx context.Context, l *load, harms []ledger.Harm, v *verdict) (jobs []ledger.Job, err error) {
	cl, err := client.New(u.ClientConfig())
	if err != nil {
		return nil, err
	}
	defer func() { _ = cl.Close() }() // nothing is written
	jobs, v.retries, err = readJobs(ctx, cl, l.ids)
	if err != nil {
		return nil, err
	}
	lines, err := ledger.Read(u.ledger())
	if err != nil {
		return nil, err
	}
	for _, fault := range ledger.Check(lines, jobs, harms) {
		u.t.Error(fault)
		switch fault.Kind {
		case ledger.Lost, ledger.Phantom:
			v.lost++
		case ledger.Duplicated, ledger.Restarted, ledger.Backwards, ledger.Disorder:
			v.twice++
		}
	}
	longest, took, ends := gaps(lines, u.steps)
	if len(longest) == 0 {
		return nil, errors.New("no tasks ended")
	}
	u.t.Log("\n" + gapTable(longest))
	v.longest, v.tasks, v.completed = longest[0], ends, float64(ends)/took.Seconds()
	return jobs, nil
}

// accept fails the test if a verdict breaks a promise.
func (v *verdict) accept(t *testing.T, longestGap time.Duration) {
	t.Helper()
	if v.lost+v.twice != 0 || v.retries != 0 || !v.equal {
		t.Errorf("%d lost, %d run twice, %d retries, digests equal: %t; want 0, 0, 0, true", v.lost, v.twice, v.retries, v.equal)
	}
	if v.longest.lasts > longestGap {
		t.Errorf("no task ended for %v (%s), want at most %v", v.longest.lasts, v.longest.step, longestGap)
	}
}

func TestVerdictsAreShownSideBySide(t *testing.T) {
	t.Parallel()
	text := table(rows([]verdict{{lost: 1, equal: true}, {twice: 2, longest: gap{lasts: 150 * time.Millisecond, step: "n1 stops"}}}))
	for _, want := range []string{"run 1", "lost", "run twice", "150 ms", "n1 stops", "true"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	columns := strings.Fields(strings.Split(text, "\n")[0])
	if !slices.Equal(columns, []string{"run", "1", "run", "2"}) {
		t.Errorf("the columns are %q", columns)
	}
}
