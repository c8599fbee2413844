//go:build !linux

package process

import (
	"context"
	"errors"
)

// RunSupervisor returns at once: there is no supervisor on this system.
func RunSupervisor() {}

// Ready reports that programs cannot be run on this system: nothing here
// guarantees that a tree of processes ends with its worker.
func Ready() error { return errors.ErrUnsupported }

// Run returns a [SupervisorError] that is errors.ErrUnsupported.
func Run(context.Context, Spec) (Exit, error) {
	return Exit{}, &SupervisorError{Err: errors.ErrUnsupported}
}
