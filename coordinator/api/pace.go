package api

import "time"

// workSlice is how long a pacer works without a rest.
const workSlice = time.Millisecond

// A pacer leaves half of a processor to others during work that takes long: without rests, the Go
// runtime lets it run for 10 ms before it looks for other goroutines, and the operating system
// prefers a process that sleeps often. It belongs to one goroutine.
type pacer struct{ began time.Time }

// rest sleeps as long as the work took since the last rest, at most ten times workSlice, if that was
// workSlice or more.
func (p *pacer) rest() {
	worked := time.Since(p.began)
	if worked < workSlice {
		return
	}
	time.Sleep(min(worked, 10*workSlice))
	p.began = time.Now()
}
