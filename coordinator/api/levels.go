package api

import (
	"sync"

	"github.com/dtask/dtask/fsm"
)

// maxCachedLevels bounds the levels that a levelsCache holds, of 4 bytes each.
const maxCachedLevels = 1 << 22

// levelsCache remembers how many tasks jobs have by topological level: counting walks
// over all dependencies of a job, and the graph of a job never changes.
type levelsCache struct {
	mu    sync.Mutex
	jobs  map[fsm.JobID][]uint32
	total int // levels in jobs
}

// get returns the counts of a job. They are shared: never change them.
func (c *levelsCache) get(id fsm.JobID) ([]uint32, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, ok := c.jobs[id]
	return counts, ok
}

func (c *levelsCache) put(id fsm.JobID, counts []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.jobs[id]; ok {
		return
	}
	if c.jobs == nil || c.total+len(counts) > maxCachedLevels {
		c.jobs, c.total = make(map[fsm.JobID][]uint32), 0
	}
	c.jobs[id] = counts
	c.total += len(counts)
}

// levels counts the tasks of a job by topological level. The counts are shared: never
// change them.
func (s *Server) levels(r *taskReader) []uint32 {
	counts, ok := s.levelsCache.get(r.job.ID)
	if !ok {
		counts = r.st.LevelCounts(r.job.ID)
		s.levelsCache.put(r.job.ID, counts)
	}
	return counts
}
