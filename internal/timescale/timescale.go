// Package timescale scales a coordinator's periodic work and its timeouts by
// one factor: heartbeats, elections, leases, sweeps, comparisons and the limits
// that belong to them. Simulations of whole clusters in virtual time use it. A
// cluster with a large factor simulates days in one hour of CPU time, and the
// ratios between its times stay those of the product. The programs have no flag
// for it.
package timescale

import "time"

// Factor is how much slower than the product a coordinator runs. 0 means 1.
type Factor float64

// Scale returns d multiplied by the factor.
func (f Factor) Scale(d time.Duration) time.Duration {
	if f == 0 || f == 1 {
		return d
	}
	return time.Duration(float64(d) * float64(f))
}
