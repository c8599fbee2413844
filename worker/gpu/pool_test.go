package gpu

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

func pool(ids ...string) *Pool { return NewPool(Devices{Vendor: NVIDIA, IDs: ids}) }

// take takes an amount that is free.
func take(t *testing.T, p *Pool, amount int64) *Grant {
	t.Helper()
	g, err := p.Take(t.Context(), amount, func() { t.Fatalf("%d thousandths are not free: %v", amount, p.free) })
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func expect(t *testing.T, g *Grant, want ...string) {
	t.Helper()
	if !slices.Equal(g.IDs, want) {
		t.Errorf("got GPUs %v, want %v", g.IDs, want)
	}
}

func TestEachAttemptGetsAGPUOfItsOwn(t *testing.T) {
	t.Parallel()
	p := pool("0", "1", "2")
	first, pair := take(t, p, 1000), take(t, p, 2000)
	expect(t, first, "0")
	expect(t, pair, "1", "2")
	first.Release()
	expect(t, take(t, p, 1000), "0")
}

func TestPartsShareTheFullestGPUWithRoom(t *testing.T) {
	t.Parallel()
	p := pool("0", "1", "2")
	expect(t, take(t, p, 300), "0")
	expect(t, take(t, p, 800), "1")
	expect(t, take(t, p, 200), "1")
	expect(t, take(t, p, 700), "0")
	expect(t, take(t, p, 1000), "2")
}

func TestOneAndAHalfGPUsAreTwo(t *testing.T) {
	t.Parallel()
	p := pool("0", "1")
	expect(t, take(t, p, 1500), "0", "1")
	expect(t, take(t, p, 500), "1")
}

func TestAnAmountThatThePoolDoesNotHaveIsAnError(t *testing.T) {
	t.Parallel()
	_, err := pool("0", "1").Take(t.Context(), 2001, func() { t.Error("waits") })
	if err == nil || err.Error() != "2.001 GPUs requested, and this worker has 2" {
		t.Errorf("got %v", err)
	}
}

// Of two GPUs, 0.4 of each are in use: 1.2 in total are free, but no whole one.
func TestAWholeGPUIsAwaitedBehindParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pool("0", "1")
		a, b, c, d := take(t, p, 600), take(t, p, 600), take(t, p, 400), take(t, p, 400)
		a.Release()
		b.Release()
		expect(t, c, "0")
		expect(t, d, "1")
		alone := start(t.Context(), p, 1000)
		synctest.Wait()
		later := start(t.Context(), p, 200)
		synctest.Wait()
		if alone.done() || later.done() {
			t.Error("an attempt got a GPU that is not free, or overtook another one")
		}
		d.Release()
		synctest.Wait()
		if !alone.done() || !later.done() {
			t.Fatal("a free GPU was not given")
		}
		expect(t, alone.grant, "1")
		expect(t, later.grant, "0")
	})
}

func TestAnAttemptThatIsStoppedWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pool("0")
		held := take(t, p, 1000)
		cause := errors.New("cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := start(ctx, p, 1000)
		synctest.Wait()
		next := start(t.Context(), p, 1000)
		synctest.Wait()
		cancel(cause)
		synctest.Wait()
		if !stopped.done() || !errors.Is(stopped.err, cause) {
			t.Errorf("got %v, %v", stopped.grant, stopped.err)
		}
		held.Release()
		synctest.Wait()
		if !next.done() {
			t.Error("the next attempt did not get the GPU")
		}
	})
}

// taking is an attempt that may wait.
type taking struct {
	ended chan struct{}
	grant *Grant
	err   error
}

func start(ctx context.Context, p *Pool, amount int64) *taking {
	x := &taking{ended: make(chan struct{})}
	go func() {
		x.grant, x.err = p.Take(ctx, amount, func() {})
		close(x.ended)
	}()
	return x
}

func (x *taking) done() bool {
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// Random attempts, whose sum the coordinator bounds: no GPU is given above its whole, whole
// ones have one holder, all get what they ask for, and all are served in the end.
func TestNoGPUIsGivenTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 5).Draw(t, "GPUs")
		p := NewPool(Devices{IDs: indexes(count)})
		total := int64(count) * whole
		var waiting []*request
		var held []*request
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			inUse := int64(0)
			for _, r := range slices.Concat(waiting, held) {
				inUse += r.amount
			}
			if rapid.Bool().Draw(t, "take") && inUse < total {
				amount := rapid.Int64Range(1, total-inUse).Draw(t, "amount")
				if rapid.Bool().Draw(t, "round") {
					amount = max(amount/500*500, 1)
				}
				r := &request{amount: amount, ready: make(chan struct{})}
				p.waiting = append(p.waiting, r)
				p.serve()
				waiting = append(waiting, r)
			} else if len(held) > 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "end")
				held[i].grant.Release()
				held = slices.Delete(held, i, i+1)
			}
			for len(waiting) > 0 && waiting[0].grant != nil {
				held, waiting = append(held, waiting[0]), waiting[1:]
			}
			checkShares(t, p, held)
			if slices.ContainsFunc(waiting, func(r *request) bool { return r.grant != nil }) {
				t.Fatal("an attempt overtook another one")
			}
			if len(held) == 0 && len(waiting) > 0 {
				t.Fatal("attempts wait for free GPUs")
			}
		}
	})
}

// checkShares compares what is free with the grants.
func checkShares(t *rapid.T, p *Pool, held []*request) {
	used := make([]int64, len(p.free))
	for _, r := range held {
		sum := int64(0)
		seen := map[int]bool{}
		for _, s := range r.grant.shares {
			if seen[s.device] {
				t.Fatalf("GPU %d was given to an attempt twice", s.device)
			}
			seen[s.device] = true
			used[s.device] += s.amount
			sum += s.amount
		}
		if sum != r.amount || int64(len(r.grant.shares)) != (r.amount+whole-1)/whole {
			t.Fatalf("%d thousandths were requested, and %v given", r.amount, r.grant.shares)
		}
	}
	for i, free := range p.free {
		if free < 0 || free+used[i] != whole {
			t.Fatalf("GPU %d: %d are free and %d in use", i, free, used[i])
		}
	}
}

func TestAttemptsThatRunAtOnceTakeFromOnePool(t *testing.T) {
	t.Parallel()
	p := pool("0", "1", "2")
	var holders [3]struct{ sync.Mutex }
	var attempts sync.WaitGroup
	for i := range 8 {
		attempts.Go(func() {
			for range 200 {
				g, err := p.Take(t.Context(), int64(1+i%2)*1000, func() {})
				if err != nil {
					t.Error(err)
					return
				}
				for _, id := range g.IDs {
					if !holders[id[0]-'0'].TryLock() {
						t.Errorf("GPU %s has two holders", id)
						return
					}
				}
				for _, id := range g.IDs {
					holders[id[0]-'0'].Unlock()
				}
				g.Release()
			}
		})
	}
	attempts.Wait()
}
