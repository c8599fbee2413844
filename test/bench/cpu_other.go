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

// queuedOf requires /proc.
func queuedOf(int) (ran, waited time.Duration, err error) { return 0, 0, errors.ErrUnsupported }

// residentOf requires /proc.
func residentOf(int) (float64, error) { return 0, errors.ErrUnsupported }

// peakOf requires /proc.
func peakOf(int) (float64, error) { return 0, errors.ErrUnsupported }

// canPin is whether pin works on this system.
const canPin = false

// pin requires Linux.
func pin(_, _, _ int) error { return errors.ErrUnsupported }
