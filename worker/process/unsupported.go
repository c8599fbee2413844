//go:build !linux

package process

import (
	"context"
	"errors"
	"time"
)

// RunSupervisor has no effect on this system.
func RunSupervisor() {}

// Ready returns errors.ErrUnsupported: on this system, nothing guarantees that
// a process tree ends with its worker.
func Ready() error { return errors.ErrUnsupported }

// A Pool runs no programs on this system.
type Pool struct{}

// Run returns a [SupervisorError] that is errors.ErrUnsupported.
func (*Pool) Run(context.Context, Spec) (Exit, error) {
	return Exit{}, &SupervisorError{Err: errors.ErrUnsupported}
}

// Stats returns zeros: no supervisor is started on this system.
func (*Pool) Stats() PoolStats { return PoolStats{} }

// Close does nothing.
func (*Pool) Close() {}

// Monotonic returns 0: no program is started on this system.
func Monotonic() time.Duration { return 0 }
