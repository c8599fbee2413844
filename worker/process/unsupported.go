//go:build !linux

package process

import (
	"context"
	"errors"
)

// RunSupervisor has no effect on this system.
func RunSupervisor() {}

// Ready returns errors.ErrUnsupported: on this system, nothing guarantees that
// a process tree ends with its worker.
func Ready() error { return errors.ErrUnsupported }

// Run returns a [SupervisorError] that is errors.ErrUnsupported.
func Run(context.Context, Spec) (Exit, error) {
	return Exit{}, &SupervisorError{Err: errors.ErrUnsupported}
}
