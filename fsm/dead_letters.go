package fsm

import (
	"fmt"
	"maps"

	"github.com/dtask/dtask/internal/taskbody"
)

// deadLetters has the number of tasks in state Dead by their type. It follows
// from the records of all jobs: it is updated with the records, not part of
// digest and snapshot, and counted on restore.
type deadLetters struct{ byType cowMap[int] }

// DeadLettersByType returns the number of dead letters by the type of their
// tasks.
func (l *deadLetters) DeadLettersByType() map[string]int {
	out := make(map[string]int, l.byType.n)
	for shard := range shardCount {
		maps.Insert(out, l.byType.scan(shard))
	}
	return out
}

// add changes the number of dead letters of a type.
func (l *deadLetters) add(own *ownership, kind string, by int) {
	n, _ := l.byType.get(kind)
	if n += by; n == 0 {
		l.byType.delete(own, kind)
		return
	}
	l.byType.set(own, kind, n)
}

// addJob does the same for all dead tasks of a job.
func (l *deadLetters) addJob(own *ownership, j *job, by int) {
	left := j.counts[Dead]
	for i := uint32(0); left > 0 && i < j.records.n; i++ {
		if j.records.at(i).state == Dead {
			l.add(own, j.kind(i), by)
			left--
		}
	}
}

// check compares the numbers with the records.
func (l *deadLetters) check(jobs *jobTable) error {
	want := map[string]int{}
	for j := range jobs.all() {
		for i := range j.records.n {
			if j.records.at(i).state == Dead {
				want[j.kind(i)]++
			}
		}
	}
	if got := l.DeadLettersByType(); !maps.Equal(got, want) {
		return fmt.Errorf("dead letters by type are %v, counted %v", want, got)
	}
	return nil
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
