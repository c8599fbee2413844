package backoff

import (
	"slices"
	"time"
)

// Rules are the retry policy of a task.
type Rules struct {
	// Max is the maximum number of attempts that follow the first because of a
	// failure. Zero and less mean no retries.
	Max int
	// On, if not empty, lists all failures that are retried.
	On []Class
	// Except lists failures that are not retried. It overrides On.
	Except []Class
	// Backoff is the delay before each retry.
	Backoff Policy
}

// An Action is what follows a failed attempt. Zero is unset.
type Action uint8

// The actions.
const (
	// Retry: another attempt follows.
	Retry Action = iota + 1
	// Failed: the task ends as failed. The failure is fatal, or the policy has
	// no retries.
	Failed
	// Dead: the task becomes a dead letter. Its retries are used up.
	Dead
)

var actionNames = [...]string{"unset", "retry", "failed", "dead"}

// String returns the action in lower case, or "unset".
func (a Action) String() string {
	if a > Dead {
		a = 0
	}
	return actionNames[a]
}

// A Decision is an Action, with the delay if it is Retry.
type Decision struct {
	Action Action
	// Delay is the time from the failure until the task is ready again.
	Delay time.Duration
}

// Decide returns what follows a failure of a task that may run more than once.
// failures is the number of its attempts whose failure counts as a retry
// (Kind.CountsAsRetry), including this one. The seed spreads the delay.
//
//   - A lost attempt is retried immediately, whatever Max is: it doesn't count as a
//     retry. On, which is about the task's own failures, doesn't restrict it. Only
//     Except makes it fatal.
//   - Without retries, every other failure is final: Failed.
//   - A failure that Except lists, or that a non-empty On doesn't list, is fatal:
//     Failed. Exit code TryAgain is never fatal.
//   - Otherwise the action is Retry while failures is at most Max, then Dead.
//
// Decide is not for an at-most-once task whose attempt is lost: it ends as
// lost.
func (r Rules) Decide(f Failure, failures int, seed uint64) Decision {
	excepted := matchesAny(r.Except, f)
	if f.Kind == Lost {
		if excepted {
			return Decision{Action: Failed}
		}
		return Decision{Action: Retry}
	}
	temporary := f.Kind == Exit && f.Code == TryAgain
	listed := len(r.On) == 0 || matchesAny(r.On, f)
	switch {
	case r.Max <= 0:
		return Decision{Action: Failed}
	case !temporary && (excepted || !listed):
		return Decision{Action: Failed}
	case failures > r.Max:
		return Decision{Action: Dead}
	default:
		return Decision{Action: Retry, Delay: r.Backoff.Delay(failures, seed)}
	}
}

func matchesAny(classes []Class, f Failure) bool {
	return slices.ContainsFunc(classes, func(c Class) bool { return c.Matches(f) })
}
