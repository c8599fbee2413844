package bench

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Label is the label whose value identifies the jobs of one run.
const Label = "bench-run"

// Limits of a configuration.
const (
	MaxClients = 1000   // one connection carries all submissions
	MaxBatch   = 10_000 // jobs in one call
)

// Config describes a load.
type Config struct {
	// Template is the largest job; the other jobs have its first tasks. Its label
	// Label is set.
	Template    *dtaskv1.JobSpec
	Tasks       int // total; 0 = until Duration has passed
	Jobs        int // total; 0 = until Duration has passed
	JobSize     int // tasks in a job
	Shape       Shape
	Width       int           // tasks in each level of a wide job
	Rate        float64       // tasks per second; 0 = unlimited
	PayloadSize int           // bytes in each task, for the report
	Duration    time.Duration // 0 = until Jobs are submitted
	Clients     int           // concurrent submissions
	Batch       int           // jobs in one call
	Sample      int           // tasks whose times are read; 0 = none

	// Progress is called by one goroutine during Run, with numbers of tasks.
	Progress func(completed, total int64)
}

// jobSize returns the number of tasks of job i.
func (c *Config) jobSize(i int) int {
	if c.Jobs == 0 {
		return c.JobSize
	}
	n := c.Tasks / c.Jobs
	if i < c.Tasks%c.Jobs {
		n++
	}
	return n
}

// interval returns the time between two jobs at the rate; 0 = unlimited.
func (c *Config) interval() time.Duration {
	if c.Rate == 0 {
		return 0
	}
	return time.Duration(float64(c.JobSize) / c.Rate * float64(time.Second))
}

// A Shape is the form of a job's dependency graph.
type Shape string

// The shapes.
const (
	Independent Shape = "independent"
	Chain       Shape = "chain" // each task depends on the previous one
	Wide        Shape = "wide"  // levels; each task depends on two of the previous level
)

// Dependencies returns the dependencies of task i in ascending order. The first
// tasks of a job have the same shape as the whole job.
func (s Shape) Dependencies(i, width int) []uint32 {
	switch {
	case s == Chain && i > 0:
		return []uint32{uint32(i - 1)} //nolint:gosec // a job has at most a million tasks
	case s == Wide && i >= width:
		above, last := uint32(i-width), i%width == width-1 //nolint:gosec // as above
		switch {
		case width == 1:
			return []uint32{above}
		case last:
			return []uint32{above - 1, above}
		}
		return []uint32{above, above + 1}
	}
	return nil
}
