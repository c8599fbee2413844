package sequencer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// BenchmarkBesideGates measures what 100,000 jobs that wait for their gates add to an entry that
// has nothing to do with them: the submission of another job, until the leader has applied it. A
// leader with such jobs and one without any take turns.
func BenchmarkBesideGates(b *testing.B) {
	b.Run("100000_wait_for_a_time", func(b *testing.B) {
		benchmarkBesideGates(b, func(h *dtaskv1.JobHeader, _ int) { h.StartAfterMs = (24 * time.Hour).Milliseconds() })
	})
	b.Run("100000_wait_for_others", func(b *testing.B) {
		benchmarkBesideGates(b, func(h *dtaskv1.JobHeader, i int) {
			const each = 100 // the first one of a key may start, and the others wait
			h.Concurrency = &dtaskv1.JobConcurrency{Key: fmt.Sprint(i / each), Limit: 1, Overlap: dtaskv1.ScheduleOverlap(fsm.OverlapWaitAll)}
		})
	})
}

func benchmarkBesideGates(b *testing.B, gate func(h *dtaskv1.JobHeader, i int)) {
	b.Helper()
	const jobs, lot = 100_000, 1_000
	var leaders [2]*sequencer.Sequencer // without and with
	for i := range leaders {
		leaders[i], _ = newCluster(b).lead()
		raiseToSchedules(b, leaders[i])
	}
	for first := 0; first < jobs; first += lot {
		var list []sequencer.Submission
		for i := first; i < first+lot; i++ {
			list = append(list, timed(fmt.Sprint("gated ", i), 1, func(h *dtaskv1.JobHeader) { gate(h, i) }).submission())
		}
		for _, r := range leaders[1].SubmitMany(b.Context(), list) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	const block = 20
	var took [2][]time.Duration
	n := 0
	for b.Loop() {
		for i, leader := range leaders {
			began := time.Now()
			for k := range block {
				mustSubmit(b, leader, spec{key: fmt.Sprint(n + k), n: 1})
			}
			took[i] = append(took[i], time.Since(began))
		}
		n += block
	}
	for i, unit := range []string{"ns-without-gates", "ns-with-gates"} {
		slices.Sort(took[i]) // the median: an entry crosses goroutines, which other programs delay
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds())/block, unit)
	}
}
