package spec

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// TaskDefaults are the defaults of task fields. The zero value has the
// built-in defaults: 60 minutes and 3 retries.
type TaskDefaults struct {
	// Timeout of one attempt, in whole milliseconds; 0 = 60 minutes.
	Timeout time.Duration
	// Retries after the first attempt, 0 to 1,000,000; nil = 3.
	Retries *uint32
}

func (d TaskDefaults) timeout() int64 {
	if d.Timeout <= 0 {
		return defaultTimeout.Milliseconds()
	}
	return max(1, d.Timeout.Milliseconds())
}

func (d TaskDefaults) retries() uint32 {
	if d.Retries == nil {
		return defaultRetries
	}
	return *d.Retries
}

// Fill sets timeout and retry in the policies of a header that was read with
// [Options.Unfilled] and lacks them. A coordinator calls it with its own
// defaults before [NewChecker]. It modifies the header and is not safe for
// concurrent use.
func Fill(h *dtaskv1.JobHeader, d TaskDefaults) {
	for _, p := range h.GetPolicies() {
		if p != nil {
			fillPolicy(p, d)
		}
	}
}

func fillPolicy(p *dtaskv1.TaskPolicy, d TaskDefaults) {
	if p.GetTimeoutMs() == 0 {
		p.TimeoutMs = d.timeout()
	}
	if p.GetRetry() == nil {
		p.Retry = &dtaskv1.RetryPolicy{
			Max: d.retries(), InitialMs: defaultInitial.Milliseconds(), MultiplierPermille: defaultMultiplier,
			MaxDelayMs: defaultMaxDelay.Milliseconds(), Jitter: true,
		}
	}
}
