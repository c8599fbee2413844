package logstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// BenchmarkStoreLogs measures how long one entry takes to be stored while two other
// replicas store theirs on the same disk.
func BenchmarkStoreLogs(b *testing.B) {
	const replicas = 3
	for _, kind := range []Kind{Bolt, WAL} {
		for _, size := range []int{256, 16 << 10, 256 << 10} {
			b.Run(string(kind)+"/"+sizeName(size), func(b *testing.B) {
				var all [replicas]*Store
				var committed atomic.Uint64
				for i := range all {
					all[i] = openNew(b, b.TempDir(), func(cfg *Config) { cfg.Kind, cfg.CommitIndex = kind, committed.Load })
				}
				times := make([]time.Duration, 0, b.N)
				data := make([]byte, size)
				for i := range data {
					data[i] = byte(i) | 1
				}
				index := uint64(0)
				for b.Loop() {
					index++
					start := time.Now()
					var errs [replicas]error
					var storing sync.WaitGroup
					for i, s := range all {
						storing.Go(func() {
							errs[i] = s.StoreLogs([]*raft.Log{{Index: index, Term: 1, Data: data, AppendedAt: start}})
						})
					}
					storing.Wait()
					committed.Store(index)
					times = append(times, time.Since(start))
					if err := errors.Join(errs[:]...); err != nil {
						b.Fatal(err)
					}
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// BenchmarkCompaction measures how long entries take to be stored while those before a
// snapshot are deleted.
func BenchmarkCompaction(b *testing.B) {
	for _, size := range []int{256, 24 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			s := openNew(b, b.TempDir(), func(cfg *Config) { cfg.Kind = Bolt })
			data, next := make([]byte, size), uint64(1)
			store := func(count int) {
				logs := make([]*raft.Log, count)
				for i := range logs {
					logs[i] = &raft.Log{Index: next, Term: 1, Data: data, AppendedAt: time.Unix(1, 0)}
					next++
				}
				if err := s.StoreLogs(logs); err != nil {
					b.Fatal(err)
				}
			}
			var times []time.Duration
			for b.Loop() {
				b.StopTimer()
				first := next
				for range 100 {
					store(32)
				}
				done := make(chan error, 1)
				last := next - 1
				store(1)
				b.StartTimer()
				go func() { done <- s.DeleteRange(first, last) }()
				for deleting := true; deleting; {
					start := time.Now()
					store(1)
					times = append(times, time.Since(start))
					select {
					case err := <-done:
						if err != nil {
							b.Fatal(err)
						}
						deleting = false
					case <-time.After(2 * time.Millisecond):
					}
				}
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*95/100].Microseconds()), "p95-µs")
			b.ReportMetric(float64(len(times)), "stores")
		})
	}
}

func sizeName(size int) string {
	if size < 1<<10 {
		return fmt.Sprintf("%dB", size)
	}
	return fmt.Sprintf("%dKiB", size>>10)
}
