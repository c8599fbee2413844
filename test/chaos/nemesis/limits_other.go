//go:build !linux

package nemesis

import (
	"context"
	"time"
)

// oom requires Linux control groups.
func oom(context.Context, *World, time.Duration) error { return ErrCannot }

// noDescriptors requires Linux: limits of other processes cannot be set.
func noDescriptors(context.Context, *World, time.Duration) error { return ErrCannot }
