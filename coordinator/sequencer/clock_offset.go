package sequencer

import "time"

// maxClockStep is how far the wall clock may move against the monotonic one before timers of
// wall-clock times are set again.
const maxClockStep = 50 * time.Millisecond

// A clockOffset is how far the wall clock was ahead of the monotonic one, from some origin, when
// timers of wall-clock times were set. Timers fire by the monotonic clock: one that was set before
// the wall clock was fires at another time than it should.
type clockOffset time.Duration

// offsetOf returns the offset at the start of a batch.
func offsetOf(b *batch) clockOffset { return clockOffset(b.wall.UnixNano() - int64(b.at)) }

// isMoved reports whether the wall clock was set since the offset was taken. A clock that runs
// a little too fast or too slow is set, too, as soon as that has added up to maxClockStep.
func (o *clockOffset) isMoved(b *batch) bool {
	return time.Duration(offsetOf(b)-*o).Abs() > maxClockStep
}

// follow takes the offset again if the wall clock was set, and reports whether it was: then the
// timers must be set again. Smaller steps add up until then.
func (o *clockOffset) follow(b *batch) bool {
	if !o.isMoved(b) {
		return false
	}
	*o = offsetOf(b)
	return true
}
