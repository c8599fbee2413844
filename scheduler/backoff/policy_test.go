package backoff_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler/backoff"
)

func TestTheDelayGrowsToItsMaximum(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Initial: time.Second, Max: 10 * time.Second, Multiplier: 2}
	for i, want := range []float64{1, 1, 2, 4, 8, 10, 10} { // from failure 0, which counts as 1
		if got := p.Delay(i, 0).Seconds(); got != want {
			t.Errorf("failure %d: got %vs, want %vs", i, got, want)
		}
	}
}

func TestInvalidPoliciesHaveSensibleDelays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  backoff.Policy
		failure int
		want    time.Duration
	}{
		"zero":                      {backoff.Policy{}, 5, 0},
		"negative initial":          {backoff.Policy{Initial: -1, Multiplier: 2, Jitter: true}, 5, 0},
		"shrinking":                 {backoff.Policy{Initial: time.Second, Multiplier: 0.5}, 5, time.Second},
		"multiplier not a number":   {backoff.Policy{Initial: time.Second, Multiplier: math.NaN()}, 5, time.Second},
		"infinite multiplier":       {backoff.Policy{Initial: time.Second, Max: time.Minute, Multiplier: math.Inf(1)}, 2, time.Minute},
		"initial above max":         {backoff.Policy{Initial: time.Hour, Max: time.Minute, Multiplier: 2}, 1, time.Minute},
		"no max":                    {backoff.Policy{Initial: time.Second, Multiplier: 2}, math.MaxInt, backoff.MaxDelay},
		"max above MaxDelay":        {backoff.Policy{Initial: math.MaxInt64, Max: math.MaxInt64}, 1, backoff.MaxDelay},
		"smallest failure possible": {backoff.Policy{Initial: time.Second, Multiplier: 2}, math.MinInt, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.policy.Delay(c.failure, 1); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestEveryDelayIsWithinItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := backoff.Policy{
			Initial:    time.Duration(rapid.Int64().Draw(t, "initial")),
			Max:        time.Duration(rapid.Int64().Draw(t, "max")),
			Multiplier: rapid.Float64().Draw(t, "multiplier"),
		}
		failure, seed := rapid.Int().Draw(t, "failure"), rapid.Uint64().Draw(t, "seed")
		full := p.Delay(failure, seed)
		p.Jitter = true
		got := p.Delay(failure, seed)
		if got != p.Delay(failure, seed) {
			t.Fatal("one seed gave two delays")
		}
		if full < 0 || full > backoff.MaxDelay || p.Max > 0 && full > p.Max {
			t.Fatalf("the full delay is %v", full)
		}
		if got > full || got < full/2 {
			t.Fatalf("with jitter %v, want between half and all of %v", got, full)
		}
		if failure > 1 && failure < math.MaxInt {
			if p.Jitter = false; p.Delay(failure+1, seed) < full {
				t.Fatalf("the delay of failure %d is longer than the next", failure)
			}
		}
	})
}

func TestJitterCoversTheUpperHalf(t *testing.T) {
	t.Parallel()
	p := backoff.Policy{Initial: 21, Multiplier: 1, Jitter: true}
	var seen [22]int
	for seed := range uint64(11_000) {
		seen[p.Delay(3, seed)]++
	}
	for d, n := range seen {
		if d < 11 && n != 0 || d >= 11 && (n < 800 || n > 1_200) {
			t.Errorf("a delay of %d was drawn %d times of 11,000", d, n)
		}
	}
}
