//go:build !linux

package process

import (
	"context"
	"errors"
)

// RunKeeper returns at once: there is no keeper on this system.
func RunKeeper() {}

// Ready reports that programs cannot be run on this system: nothing here
// guarantees that a tree of processes ends with its worker.
func Ready() error { return errors.ErrUnsupported }

// Run returns a [KeeperError] that is errors.ErrUnsupported.
func Run(context.Context, Spec) (Exit, error) {
	return Exit{}, &KeeperError{Err: errors.ErrUnsupported}
}
