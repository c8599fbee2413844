//go:build !faults

package dtaskd

import "github.com/dtask/dtask/coordinator"

// instrument does nothing: fault switches are in builds with -tags faults only (ADR
// 0029).
func instrument(*coordinator.Config) error { return nil }
