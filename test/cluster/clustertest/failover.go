package clustertest

import (
	"fmt"
	"time"
)

// FailoverLimit bounds a failover: a leader that was lost, in any way that the suites
// know, is replaced and work continues within that time. It is generous, because machines
// are shared; make chaos-measure prints how long it takes.
const FailoverLimit = 30 * time.Second

// WithinFailoverLimit returns an error for the first failover that took longer than
// FailoverLimit.
func WithinFailoverLimit(what string, times ...time.Duration) error {
	for i, took := range times {
		if took > FailoverLimit {
			return fmt.Errorf("%s: number %d took %v, want at most %v", what, i+1, took, FailoverLimit)
		}
	}
	return nil
}
