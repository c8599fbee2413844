package backoff_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler/backoff"
)

func TestDecisionsFollowTheRules(t *testing.T) {
	t.Parallel()
	exit := func(code int) backoff.Failure { return backoff.Failure{Kind: backoff.Exit, Code: code} }
	lost := backoff.Failure{Kind: backoff.Lost}
	on := func(texts ...string) backoff.Rules { return backoff.Rules{Max: 2, On: classes(t, texts...)} }
	except := func(texts ...string) backoff.Rules { return backoff.Rules{Max: 2, Except: classes(t, texts...)} }
	for name, c := range map[string]struct {
		rules    backoff.Rules
		failure  backoff.Failure
		failures int
		want     backoff.Action
	}{
		"first failure":                       {backoff.Rules{Max: 2}, exit(1), 1, backoff.Retry},
		"last retry":                          {backoff.Rules{Max: 2}, exit(1), 2, backoff.Retry},
		"retries used up":                     {backoff.Rules{Max: 2}, exit(1), 3, backoff.Dead},
		"no retries":                          {backoff.Rules{}, exit(1), 1, backoff.Failed},
		"negative max":                        {backoff.Rules{Max: -1}, exit(1), 1, backoff.Failed},
		"no retries, temporary":               {backoff.Rules{}, exit(75), 1, backoff.Failed},
		"excepted":                            {except("exit:2"), exit(2), 1, backoff.Failed},
		"excepted at the end":                 {except("exit:2"), exit(2), 3, backoff.Failed},
		"other than excepted":                 {except("exit:2"), exit(3), 1, backoff.Retry},
		"listed":                              {on("timeout", "exit:2"), exit(2), 1, backoff.Retry},
		"not listed":                          {on("timeout", "exit:2"), exit(3), 1, backoff.Failed},
		"listed and excepted":                 {backoff.Rules{Max: 2, On: classes(t, "exit:1-9"), Except: classes(t, "exit:2")}, exit(2), 1, backoff.Failed},
		"temporary though excepted":           {except("exit:75"), exit(75), 1, backoff.Retry},
		"temporary though not listed":         {on("timeout"), exit(75), 2, backoff.Retry},
		"temporary too often":                 {backoff.Rules{Max: 2}, exit(75), 3, backoff.Dead},
		"a timeout of 75 is not an exit code": {on("exit:1"), backoff.Failure{Kind: backoff.Timeout, Code: 75}, 1, backoff.Failed},
		"lost without retries":                {backoff.Rules{}, lost, 0, backoff.Retry},
		"lost after the last retry":           {backoff.Rules{Max: 2}, lost, 2, backoff.Retry},
		"lost and not listed":                 {on("exit:1"), lost, 0, backoff.Retry},
		"lost and excepted":                   {except("lost"), lost, 0, backoff.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.rules.Decide(c.failure, c.failures, 1).Action; got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestOnlyALossDoesNotCountAsARetry(t *testing.T) {
	t.Parallel()
	for k := backoff.Exit; k <= backoff.Error; k++ {
		if got, want := k.CountsAsRetry(), k != backoff.Lost; got != want {
			t.Errorf("%v: got %v, want %v", k, got, want)
		}
	}
}

// Its retries have the delays of its policy, and lost workers don't count.
func TestATaskThatAlwaysFailsRunsOnceAndMaxRetries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := backoff.Rules{
			Max:     rapid.IntRange(1, 20).Draw(t, "max"),
			Backoff: backoff.Policy{Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: true},
		}
		attempts, failures := 0, 0
		for seed := uint64(0); ; seed++ {
			f := backoff.Failure{Kind: backoff.Exit, Code: rapid.SampledFrom([]int{1, 75}).Draw(t, "code")}
			if attempts < 100 && rapid.Bool().Draw(t, "lost") {
				f = backoff.Failure{Kind: backoff.Lost}
			}
			attempts++
			if f.Kind.CountsAsRetry() {
				failures++
			}
			d := rules.Decide(f, failures, seed)
			if d.Action == backoff.Dead {
				break
			}
			want := rules.Backoff.Delay(failures, seed)
			if f.Kind == backoff.Lost {
				want = 0
			}
			if d != (backoff.Decision{Action: backoff.Retry, Delay: want}) {
				t.Fatalf("attempt %d: got %+v, want a retry after %v", attempts, d, want)
			}
		}
		if failures != rules.Max+1 {
			t.Fatalf("dead after %d failures, want %d", failures, rules.Max+1)
		}
	})
}
