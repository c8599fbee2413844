package gpu

import "testing"

// BenchmarkTake measures what choosing GPUs costs an attempt, from the request to the release, on a
// worker with 8 GPUs of which attempts hold one, a half, and a quarter.
func BenchmarkTake(b *testing.B) {
	for _, of := range []struct {
		name   string
		amount int64
	}{{"one", 1000}, {"half", 500}, {"four_and_a_half", 4500}} {
		b.Run(of.name, func(b *testing.B) {
			p := NewPool(Devices{IDs: indexes(8)})
			free := func() { b.Error("the attempt waits") }
			for _, amount := range []int64{1000, 500, 250} {
				if _, err := p.Take(b.Context(), amount, free); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				g, err := p.Take(b.Context(), of.amount, free)
				if err != nil {
					b.Fatal(err)
				}
				g.Release()
			}
		})
	}
}
