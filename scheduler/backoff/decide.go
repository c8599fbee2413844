package backoff

import "time"

// Rules are the retry policy of a task.
type Rules struct {
	// Max is how many attempts may follow the first because it failed. Zero,
	// or less, asks for no retries.
	Max int
	// On, if not empty, lists all that is worth a retry.
	On []Class
	// Except lists what is not. It is stronger than On.
	Except []Class
	// Backoff is the wait before each retry.
	Backoff Policy
}

// A Verdict is what becomes of a task after a failed attempt. Zero is unset.
type Action uint8

// The verdicts.
const (
	// Retry: another attempt follows.
	Retry Action = iota + 1
	// Failed: the failure is fatal, or no retries were asked for.
	Failed
	// Dead: the retries are used up; the task goes to the dead letters.
	Dead
)

// String returns the verdict in lower case, or "unset".
func (v Action) String() string {
	switch v {
	case Retry:
		return "retry"
	case Failed:
		return "failed"
	case Dead:
		return "dead"
	default:
		return "unset"
	}
}

// A Decision is a Verdict, with the wait if it is Retry.
type Decision struct {
	Action Action
	// Delay is how long after the failure the task becomes ready again.
	Delay time.Duration
}

// Decide says what follows a failure of a task that may run more than once.
// failures is how many of its attempts have failed with a Kind that Burns a
// retry, this one included if it does. The seed spreads the wait.
//
//   - A lost attempt is repeated at once and whatever Max says, since it burns
//     no retry and On, which is about the task's own failures, does not
//     restrict it. Only Except can make it fatal.
//   - Without retries every other failure is final: Failed.
//   - A failure that Except lists, or that a non-empty On does not, is fatal:
//     Failed. Exit code TryAgain is never fatal.
//   - Otherwise it is Retry while failures is at most Max, and then Dead.
//
// An at-most-once task whose attempt is lost is not for Decide: it ends as lost.
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
	for _, c := range classes {
		if c.Matches(f) {
			return true
		}
	}
	return false
}
