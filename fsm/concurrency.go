package fsm

import (
	"errors"
	"fmt"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// concurrency has the jobs of each concurrency key that have not ended, ascending. Lists are
// replaced, never changed. It follows from the jobs, and is not in snapshots.
type concurrency struct{ byKey cowMap[[]JobID] }

// ConcurrencyKey returns the key that a job with this header shares with others, with its
// namespace; empty if it has none, or is not counted.
func ConcurrencyKey(h *dtaskv1.JobHeader) string {
	c := h.GetConcurrency()
	if c == nil || overlapOf(h) == OverlapAllow {
		return ""
	}
	return ScopedKey(h.GetNamespace(), c.GetKey())
}

// ConcurrencyLimit is how many jobs may run with the key of this header.
func ConcurrencyLimit(h *dtaskv1.JobHeader) int { return int(max(h.GetConcurrency().GetLimit(), 1)) }

func overlapOf(h *dtaskv1.JobHeader) Overlap {
	return Overlap(max(h.GetConcurrency().GetOverlap(), dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP)) //nolint:gosec // checked: see checkConcurrency
}

func checkConcurrency(c *dtaskv1.JobConcurrency) bool {
	return c == nil || c.GetKey() != "" && len(c.GetKey()) <= maxConcurrencyKey && !IsScoped(c.GetKey()) &&
		c.GetLimit() <= maxConcurrencyLimit && c.GetOverlap() >= 0 && c.GetOverlap() < dtaskv1.ScheduleOverlap(numOverlaps)
}

// hasKey reports whether a job is counted with others that have its key.
func (j *job) hasKey() bool { return j.gate != gateNone && ConcurrencyKey(j.header) != "" }

// KeyJobs returns the jobs with a concurrency key that have not ended, ascending. Shared:
// never change it.
func (s *State) KeyJobs(key string) []JobID {
	open, _ := s.concurrency.byKey.get(key)
	return open
}

// Holders is the number of jobs that a concurrency key has let run, and that have not ended.
func (s *State) Holders(key string) (n int) {
	for _, id := range s.KeyJobs(key) {
		if s.jobs.get(id).gate == gateOpened {
			n++
		}
	}
	return n
}

// MostKeyJobs is how many jobs with the concurrency key of a header may run and wait.
func MostKeyJobs(h *dtaskv1.JobHeader) int { return ConcurrencyLimit(h) + maxWaitingJobs }

// isFull reports whether no further job may wait for a key.
func (s *State) isFull(h *dtaskv1.JobHeader) bool {
	return len(s.KeyJobs(ConcurrencyKey(h))) >= MostKeyJobs(h)
}

// admit applies an overlap rule to a job that begins to wait for its concurrency key: it may
// have to be rejected, or replaces others. by is the number of the job. A rejection changes
// nothing.
func (s *State) admit(h *dtaskv1.JobHeader, rule Overlap, by JobID, fx *Effects) Reason {
	open, limit := s.KeyJobs(ConcurrencyKey(h)), ConcurrencyLimit(h)
	if rule == OverlapAllow || len(open) < limit {
		return Accepted
	}
	switch {
	case s.isFull(h), rule == OverlapSkip, rule == OverlapWait && len(open) > limit:
		return RunOpen
	case rule == OverlapReplace:
		for _, id := range slices.Backward(open[:len(open)-limit+1]) {
			s.endJob(id, JobCancelled, fmt.Sprintf("replaced by job %d, which has the same concurrency key", by), false, fx)
		}
	}
	return Accepted
}

// joinKey adds a job that has not ended to those with its key.
func (s *State) joinKey(j *job) {
	if !j.hasKey() {
		return
	}
	key := ConcurrencyKey(j.header)
	open := s.KeyJobs(key)
	at, _ := slices.BinarySearch(open, j.id)
	s.concurrency.byKey.set(s.own, key, slices.Insert(slices.Clone(open), at, j.id))
}

// leaveKey removes a job that has ended.
func (s *State) leaveKey(j *job) {
	if !j.hasKey() {
		return
	}
	key := ConcurrencyKey(j.header)
	open := s.KeyJobs(key)
	at, found := slices.BinarySearch(open, j.id)
	switch {
	case !found:
	case len(open) == 1:
		s.concurrency.byKey.delete(s.own, key)
	default:
		s.concurrency.byKey.set(s.own, key, slices.Delete(slices.Clone(open), at, at+1))
	}
}

// keyWaits are the jobs with a concurrency key that others with it may wait for.
type keyWaits struct {
	list   []JobID // those that run, and those that may start now; ascending
	opened []JobID // those that run
}

// keyWaits finds the jobs that others with a key may wait for.
func (s *State) keyWaits(key string) *keyWaits {
	open := s.KeyJobs(key)
	w := &keyWaits{list: make([]JobID, 0, len(open))}
	for _, id := range open {
		switch x := s.jobs.get(id); {
		case x.gate == gateOpened:
			w.list, w.opened = append(w.list, id), append(w.opened, id)
		case !x.waiting() && startMS(x.header, x.submitted) <= s.now:
			w.list = append(w.list, id)
		}
	}
	return w
}

// of returns the jobs that a gated job waits for: those that its key lets run, and the earlier
// ones that wait for it and may start now. Shared: never change it.
func (w *keyWaits) of(id JobID) []JobID {
	at, _ := slices.BinarySearch(w.list, id)
	later, _ := slices.BinarySearch(w.opened, id)
	if later == len(w.opened) {
		return w.list[:at:at]
	}
	return slices.Concat(w.list[:at], w.opened[later:])
}

// jobWaits finds what jobs wait for while they are read: for the jobs of one key it reads its
// jobs once. It must not outlive a change of the state.
type jobWaits struct {
	s     *State
	byKey map[string]*keyWaits
}

// maxKeptWaits is how many keys a jobWaits keeps, of at most 1,099 jobs each.
const maxKeptWaits = 256

// of returns what a job waits for. Shared: never change it.
func (w *jobWaits) of(j *job) []JobID {
	if !j.gated() || !j.hasKey() {
		return nil
	}
	key := ConcurrencyKey(j.header)
	known := w.byKey[key]
	if known == nil {
		known = w.s.keyWaits(key)
		if w.byKey == nil || len(w.byKey) >= maxKeptWaits {
			w.byKey = make(map[string]*keyWaits)
		}
		w.byKey[key] = known
	}
	return known.of(j.id)
}

// restoreKeys finds the jobs of each key in a state that was read from a snapshot.
func (s *State) restoreKeys() {
	for j := range s.jobs.all() {
		if j.state != JobUploading && !j.state.Terminal() {
			s.joinKey(j)
		}
	}
}

// checkKeys checks that the jobs of each key are those that have not ended.
func (s *State) checkKeys() error {
	n := 0
	for j := range s.jobs.all() {
		if j.state == JobUploading || !j.hasKey() {
			continue
		}
		_, found := slices.BinarySearch(s.KeyJobs(ConcurrencyKey(j.header)), j.id)
		if found == j.state.Terminal() {
			return fmt.Errorf("job %d, which is %v, is open with its concurrency key: %v", j.id, j.state, found)
		}
		if found {
			n++
		}
	}
	for shard := range shardCount {
		for key, open := range s.concurrency.byKey.scan(shard) {
			if n -= len(open); len(open) == 0 || !slices.IsSorted(open) {
				return fmt.Errorf("concurrency key %q has the jobs %v", key, open)
			}
		}
	}
	if n != 0 {
		return errors.New("a concurrency key has other jobs than those that are open")
	}
	return nil
}
