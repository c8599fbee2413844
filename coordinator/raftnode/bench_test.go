package raftnode

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkPropose measures entries per second through three replicas on one machine,
// with four in flight, synced at each.
func BenchmarkPropose(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		b.Run(sizeName(size), func(b *testing.B) {
			c := newCluster(b, 3, nil)
			leader := c.leader(b)
			data := make([]byte, size)
			var flight []*Proposal
			b.SetBytes(int64(size))
			for b.Loop() {
				flight = append(flight, leader.Propose(data))
				if len(flight) == 4 {
					if _, _, err := flight[0].Wait(); err != nil {
						b.Fatal(err)
					}
					flight = flight[1:]
				}
			}
			for _, p := range flight {
				if _, _, err := p.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			s := leader.Stats()
			b.ReportMetric(float64(s.StoredEntries)/float64(s.Syncs), "entries/sync")
		})
	}
}

// BenchmarkApplyAtFollowers measures the time from a proposal until all three replicas
// have applied it, with nothing else in flight.
func BenchmarkApplyAtFollowers(b *testing.B) {
	c := newCluster(b, 3, nil)
	leader := c.leader(b)
	for b.Loop() {
		_, index, err := leader.Propose(make([]byte, 64)).Wait()
		if err != nil {
			b.Fatal(err)
		}
		for _, n := range c {
			for n.AppliedIndex() < index {
				runtime.Gosched()
			}
		}
	}
}

func sizeName(size int) string {
	if size >= 1<<10 {
		return fmt.Sprintf("%dKiB", size>>10)
	}
	return fmt.Sprintf("%dB", size)
}

// BenchmarkReadIndex measures linearizable reads, one by one and concurrent.
func BenchmarkReadIndex(b *testing.B) {
	c := newCluster(b, 3, nil)
	leader := c.leader(b)
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if _, err := leader.ReadIndex(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("64 at once", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := leader.ReadIndex(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
