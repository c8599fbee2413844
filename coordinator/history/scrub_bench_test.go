package history

import (
	"testing"

	"golang.org/x/time/rate"
)

// BenchmarkScrub measures the cost of checking a whole file.
func BenchmarkScrub(b *testing.B) {
	h, st := benchHistory(b), benchState()
	for made, index := 0, uint64(0); made < 20_000; made += 5000 {
		index++
		h.Take(index, archivedJobs(b, st, made, 5000, 10))
		if err := h.Sync(b.Context(), index); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	start, size := cpu(b), h.Stats().Scrubbed
	for range b.N {
		if _, err := h.scrubAll(b.Context(), rate.NewLimiter(rate.Inf, 1<<30)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu(b)-start)/float64(h.Stats().Scrubbed-size), "cpu-ns/byte")
}
