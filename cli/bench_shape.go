package cli

import (
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A shape is how the tasks of a job hang together.
type shape string

const (
	shapeIndependent shape = "independent"
	shapeChain       shape = "chain" // each depends on the one before
	shapeWide        shape = "wide"  // levels; each task depends on two of the level before
)

// known tells whether there is such a shape.
func (s shape) known() bool {
	return s == shapeIndependent || s == shapeChain || s == shapeWide
}

// tasks makes n tasks like t. The first m of them are a job of this shape, too.
func (s shape) tasks(t *dtaskv1.TaskSpec, n, width int) []*dtaskv1.TaskSpec {
	tasks := repeat(t, n)
	for i, task := range tasks {
		task.Dependencies = s.dependencies(i, width)
	}
	return tasks
}

// dependencies are those of task i, ascending.
func (s shape) dependencies(i, width int) []uint32 {
	switch {
	case s == shapeChain && i > 0:
		return []uint32{uint32(i - 1)} //nolint:gosec // a job has a million tasks at most
	case s == shapeWide && i >= width:
		level, at := i/width-1, i%width
		above := uint32(level*width + at) //nolint:gosec // as above
		switch {
		case width == 1:
			return []uint32{above}
		case at == width-1:
			return []uint32{above - 1, above}
		}
		return []uint32{above, above + 1}
	}
	return nil
}
