//go:build !linux

package main

import (
	"errors"
	"time"
)

// cpuOf requires /proc.
func cpuOf(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

// treeCPU requires /proc.
func treeCPU(int) (time.Duration, error) { return 0, errors.ErrUnsupported }
