//go:build !linux

package nemesis

import (
	"context"
	"time"
)

// oom cannot be done without the kernel's groups.
func oom(context.Context, *World, time.Duration) error { return nil, ErrCannot }

// noDescriptors cannot be done to another process.
func noDescriptors(context.Context, *World, time.Duration) error { return nil, ErrCannot }
