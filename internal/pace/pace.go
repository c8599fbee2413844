// Package pace scales, in one place, all that a coordinator does again and again
// and all that it waits for while nobody answers: heartbeats, elections, leases,
// sweeps, comparisons and the limits that belong to them. Whole clusters in virtual
// time use it: a slow one lives through days in the processor time of an hour, and
// the ratios between its times stay the product's. Programs have no flag for it.
package pace

import "time"

// Pace is by how much slower than the product a coordinator is; 0 is 1.
type Pace float64

// Of scales a duration.
func (p Pace) Of(d time.Duration) time.Duration {
	if p == 0 || p == 1 {
		return d
	}
	return time.Duration(float64(d) * float64(p))
}
