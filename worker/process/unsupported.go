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
type Pool struct {
	User *User
}

// Run returns a [SupervisorError] that is errors.ErrUnsupported.
func (*Pool) Run(context.Context, Spec) (Exit, error) {
	return Exit{}, &SupervisorError{Err: errors.ErrUnsupported}
}

// Stats returns zeros: no supervisor is started on this system.
func (*Pool) Stats() PoolStats { return PoolStats{} }

// Close does nothing.
func (*Pool) Close() {}

// Check returns errors.ErrUnsupported.
func (*User) Check() error { return errors.ErrUnsupported }

// Own returns errors.ErrUnsupported unless u is nil.
func (u *User) Own(string) error { return u.unsupported() }

// Do calls f if u is nil, and otherwise returns errors.ErrUnsupported.
func (u *User) Do(f func() error) error {
	if err := u.unsupported(); err != nil {
		return err
	}
	return f()
}

func (u *User) unsupported() error {
	if u == nil {
		return nil
	}
	return errors.ErrUnsupported
}

// Monotonic returns 0: no program is started on this system.
func Monotonic() time.Duration { return 0 }
