package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// A step is something that was done to the cluster, and when it began, on the clock of the
// ledger.
type step struct {
	name string
	at   time.Duration
}

// begin records a step.
func (u *upgrade) begin(format string, args ...any) {
	u.t.Helper()
	at, err := ledger.Now()
	clustertest.Must(u.t, err)
	u.steps = append(u.steps, step{fmt.Sprintf(format, args...), at})
}

// A gap is a time in which no task ended.
type gap struct {
	step string // in which it began
	lasts,
	after time.Duration // since the step began
}

// gaps returns the longest gap of each step, the longest first, and how many tasks ended
// in which time. A gap belongs to the last step before its end.
func gaps(lines []ledger.Line, steps []step) (longest []gap, took time.Duration, ends int) {
	var at []time.Duration
	for _, r := range ledger.Runs(lines) {
		if r.Ended() {
			at = append(at, r.End)
		}
	}
	slices.Sort(at)
	now, by := -1, make(map[int]gap)
	for i := 1; i < len(at); i++ {
		for now+1 < len(steps) && steps[now+1].at < at[i] {
			now++
		}
		g := gap{step: "start", lasts: at[i] - at[i-1]}
		if now >= 0 {
			g.step, g.after = steps[now].name, max(at[i-1]-steps[now].at, 0)
		}
		if g.lasts > by[now].lasts {
			by[now] = g
		}
		took = at[i] - at[0]
	}
	for _, g := range by {
		longest = append(longest, g)
	}
	slices.SortFunc(longest, func(x, y gap) int { return cmp.Compare(y.lasts, x.lasts) })
	return longest, took, len(at)
}

// printedGaps is how many gaps are printed.
const printedGaps = 8

// gapTable shows the longest gaps.
func gapTable(all []gap) string {
	rows := [][]string{{"longest times without a completion", "in", "ms after it began"}}
	for _, g := range all[:min(printedGaps, len(all))] {
		rows = append(rows, []string{milliseconds(g.lasts), g.step, fmt.Sprint(g.after.Milliseconds())})
	}
	return table(rows)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}

// table aligns the columns of rows.
func table(rows [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t")) // into memory
	}
	_ = w.Flush()
	return text.String()
}

func TestAGapBelongsToTheLastStepBeforeItsEnd(t *testing.T) {
	t.Parallel()
	var lines []ledger.Line
	for i, end := range []time.Duration{1, 2, 5, 6, 16, 17} {
		l := ledger.Line{Kind: ledger.Start, Job: "1", Task: fmt.Sprint(i), Attempt: 1, At: end}
		lines = append(lines, l)
		l.Kind = ledger.End
		lines = append(lines, l)
	}
	got, took, ends := gaps(lines, []step{{"n1 stops", 4}, {"n2 stops", 8}})
	want := []gap{{"n2 stops", 10, 0}, {"n1 stops", 3, 0}, {"start", 1, 0}}
	if !slices.Equal(got, want) || took != 16 || ends != 6 {
		t.Errorf("got %v, %d ends in %d; want %v, 6 in 16", got, ends, took, want)
	}
}
