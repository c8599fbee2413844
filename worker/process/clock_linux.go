package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the reading of a clock that all processes of this machine share.
// It continues while a process is stopped, but not while the machine is suspended.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // never fails for this clock
	return time.Duration(ts.Nano())
}
