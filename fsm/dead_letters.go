package fsm

import (
	"fmt"
	"maps"

	"github.com/dtask/dtask/internal/taskbody"
)

// Dead letters are the tasks in state Dead. Their number by type follows from
// the records of all jobs. It is updated with the records, not part of digest
// and snapshot, and counted on restore.

// DeadLettersByType returns the number of dead letters by the type of their
// tasks.
func (s *State) DeadLettersByType() map[string]int {
	out := make(map[string]int, s.deadLetters.n)
	for shard := range shardCount {
		maps.Insert(out, s.deadLetters.scan(shard))
	}
	return out
}

// TaskType is what executes a task: the name of its handler, "command" or
// "run"; empty if the task is unknown.
func (s *State) TaskType(t TaskRef) string {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return ""
	}
	return j.kind(t.Index)
}

// kind reads only the beginning of the body: payloads are long.
func (j *job) kind(i uint32) string {
	t := j.task(i)
	policies := j.header.GetPolicies()
	if int(t.policy) >= len(policies) {
		return "" // in a damaged snapshot, which Check refuses
	}
	if name := policies[t.policy].GetType(); name != "" {
		return name
	}
	return taskbody.Encoded(t.body).Executor()
}

// countDeadLetter updates the number of dead letters of a type.
func (s *State) countDeadLetter(kind string, by int) {
	n, _ := s.deadLetters.get(kind)
	if n += by; n == 0 {
		s.deadLetters.delete(s.own, kind)
		return
	}
	s.deadLetters.set(s.own, kind, n)
}

// countDeadLetters does the same for all dead tasks of a job.
func (s *State) countDeadLetters(j *job, by int) {
	left := j.counts[Dead]
	for i := uint32(0); left > 0 && i < j.records.n; i++ {
		if j.records.at(i).state == Dead {
			s.countDeadLetter(j.kind(i), by)
			left--
		}
	}
}

// checkDeadLetters compares the numbers with the records.
func (s *State) checkDeadLetters() error {
	want := map[string]int{}
	for j := range s.Jobs(0) {
		for i := range j.Total {
			if ref := (TaskRef{j.ID, i}); s.jobs.get(j.ID).records.at(i).state == Dead {
				want[s.TaskType(ref)]++
			}
		}
	}
	if got := s.DeadLettersByType(); !maps.Equal(got, want) {
		return fmt.Errorf("dead letters by type are %v, counted %v", want, got)
	}
	return nil
}
