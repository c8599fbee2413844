package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// sharing is a plan of a job with a concurrency key.
func sharing(overlap Overlap, limit uint32) *jobPlan {
	return gatedAt(plan(nil), jobTimes{shared: &dtaskv1.JobConcurrency{Key: "deploy", Limit: limit, Overlap: dtaskv1.ScheduleOverlap(overlap)}})
}

// submits submits a job with a concurrency key, and opens its gate if that is possible.
func submits(t *testing.T, s *State, p *jobPlan) (id JobID, r Reason) {
	t.Helper()
	id = s.NextJob()
	ops := submitGated(id, fmt.Sprint("job ", id), p)
	if r = s.Apply(Entry{NowMS: 1000, Ops: ops[:len(ops)-1]}, nil); r != Accepted {
		t.Fatal(r)
	}
	if r = s.Apply(Entry{NowMS: 1000, Ops: ops[len(ops)-1:]}, nil); r == Accepted {
		s.Apply(Entry{NowMS: 1000, Ops: []Op{&OpenGate{Job: id}}}, nil)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return id, r
}

func TestJobsWithAKeyFollowItsRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule  Overlap
		limit uint32
		want  []Reason // of successive jobs
		open  int      // that have not ended
		run   int      // of them
	}{
		{OverlapSkip, 1, []Reason{Accepted, RunOpen, RunOpen}, 1, 1},
		{OverlapSkip, 2, []Reason{Accepted, Accepted, RunOpen}, 2, 2},
		{OverlapWait, 0, []Reason{Accepted, Accepted, RunOpen}, 2, 1},
		{OverlapWait, 2, []Reason{Accepted, Accepted, Accepted, RunOpen}, 3, 2},
		{OverlapWaitAll, 1, append(slices.Repeat([]Reason{Accepted}, 100), RunOpen), 100, 1},
		{OverlapReplace, 1, []Reason{Accepted, Accepted, Accepted}, 1, 1},
		{OverlapReplace, 2, []Reason{Accepted, Accepted, Accepted, Accepted}, 2, 2},
		{OverlapAllow, 1, []Reason{Accepted, Accepted, Accepted}, 0, 0},
	} {
		s := gatedState(t)
		for i, want := range c.want {
			if _, got := submits(t, s, sharing(c.rule, c.limit)); got != want {
				t.Errorf("rule %d, limit %d, job %d: got %v, want %v", c.rule, c.limit, i+1, got, want)
			}
		}
		if open, run := len(s.KeyJobs("deploy")), s.Holders("deploy"); open != c.open || run != c.run {
			t.Errorf("rule %d, limit %d: %d jobs are open and %d run, want %d and %d", c.rule, c.limit, open, run, c.open, c.run)
		}
	}
}

// The jobs of other namespaces have other keys.
func TestAKeyBelongsToANamespace(t *testing.T) {
	t.Parallel()
	s := gatedState(t)
	for i, want := range []Reason{Accepted, Accepted, RunOpen} {
		p := sharing(OverlapSkip, 1)
		p.namespace = []string{"", "etl", "default"}[i]
		if _, got := submits(t, s, p); got != want {
			t.Errorf("namespace %q: got %v, want %v", p.namespace, got, want)
		}
	}
}

// A replaced job with cleanup tasks is open until they have ended.
func TestAJobWaitsForTheCleanupOfTheJobThatItReplaces(t *testing.T) {
	t.Parallel()
	s := gatedState(t)
	p := sharing(OverlapReplace, 1)
	p.tasks = append(p.tasks, taskPlan{name: "cleanup", policy: 2})
	first, _ := submits(t, s, p)
	second, _ := submits(t, s, sharing(OverlapReplace, 1))
	j, _ := s.Job(first)
	if next, _ := s.Job(second); !j.CleaningUp() || !slices.Equal(next.WaitsFor, []JobID{first}) {
		t.Errorf("the replaced job is %+v, the other one waits for %v", j, next.WaitsFor)
	}
	if want := "replaced by job 2, which has the same concurrency key"; j.Error != want {
		t.Errorf("the replaced job has the error %q, want %q", j.Error, want)
	}
}

func TestAJobDoesNotWaitForOneThatStartsLater(t *testing.T) {
	t.Parallel()
	s := gatedState(t)
	key := &dtaskv1.JobConcurrency{Key: "deploy", Limit: 1, Overlap: dtaskv1.ScheduleOverlap(OverlapWaitAll)}
	submits(t, s, gatedAt(plan(nil), jobTimes{startAfter: 60_000, shared: key}))
	holder, _ := submits(t, s, sharing(OverlapWaitAll, 1))
	waits, _ := submits(t, s, sharing(OverlapWaitAll, 1))
	if j, _ := s.Job(waits); !slices.Equal(j.WaitsFor, []JobID{holder}) {
		t.Errorf("job %d waits for %v, want only job %d", waits, j.WaitsFor, holder)
	}
}

// A job that ended gives its key to others, and waits for it again when it is retried.
func TestARetriedJobWaitsForItsKeyAgain(t *testing.T) {
	t.Parallel()
	s := gatedState(t)
	apply := func(op Op) Reason { return s.Apply(Entry{NowMS: 2000, Ops: []Op{op}}, nil) }
	first, _ := submits(t, s, sharing(OverlapSkip, 1))
	if r := apply(&CancelJob{Job: first, Reason: "not needed"}); r != Accepted {
		t.Fatal(r)
	}
	second, r := submits(t, s, sharing(OverlapSkip, 1))
	if r != Accepted {
		t.Fatal(r)
	}
	if r := apply(&Revive{Job: first}); r != Accepted {
		t.Fatal(r)
	}
	if j, _ := s.Job(first); !j.Gated || !slices.Equal(j.WaitsFor, []JobID{second}) || apply(&OpenGate{Job: first}) != RunOpen {
		t.Errorf("the retried job does not wait: %+v", j)
	}
	data := snapshotOf(t, s)
	again := restored(t, data)
	if !bytes.Equal(snapshotOf(t, again), data) || !slices.Equal(again.KeyJobs("deploy"), []JobID{first, second}) {
		t.Errorf("after a restore, the key has the jobs %v", again.KeyJobs("deploy"))
	}
	if r := apply(&CancelJob{Job: second, Reason: "not needed"}); r != Accepted {
		t.Fatal(r)
	}
	if r := apply(&OpenGate{Job: first}); r != Accepted {
		t.Errorf("the retried job still waits: %v", r)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// A schedule without a key has its name as key, and one with a key shares it with other jobs.
func TestTheRunsOfAScheduleHaveAKey(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		p   *jobPlan
		key string
	}{
		"its name":      {plan(nil), "plan"},
		"that of a job": {sharing(OverlapSkip, 1), "deploy"},
	} {
		s := scheduled(t, c.p, nil)
		if r := s.Apply(Entry{NowMS: 3000, Ops: []Op{fireAt(2000, 3600), fireAt(2001, 3601)}}, nil); r != RunOpen {
			t.Errorf("%s: got %v", what, r)
		}
		if got := s.KeyJobs(c.key); !slices.Equal(got, []JobID{2}) {
			t.Errorf("%s: the key has the jobs %v", what, got)
		}
	}
	s := New()
	s.level.current = 3
	if r := s.Apply(Entry{NowMS: 1000, Ops: setOf(1, sharing(OverlapWait, 1), nil)}, nil); r != Malformed {
		t.Errorf("a schedule whose rule is not that of its jobs: got %v", r)
	}
}

// What a job waits for is the same whether it is read alone or in a list, and as each pair of
// jobs decides it: a job waits for those that run, and for those before it that may start.
func TestJobsInAListWaitForTheSameAsAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := gatedState(t)
		for i := range rapid.IntRange(1, 12).Draw(r, "jobs") {
			times := jobTimes{shared: &dtaskv1.JobConcurrency{
				Key: rapid.SampledFrom([]string{"deploy", "test"}).Draw(r, "key"), Limit: 2, Overlap: dtaskv1.ScheduleOverlap(OverlapWaitAll),
			}}
			times.startAfter = rapid.SampledFrom([]int64{0, 60_000}).Draw(r, "after")
			p := gatedAt(plan(nil), times)
			if reason := s.Apply(Entry{NowMS: 1000, Ops: submitGated(JobID(i+1), fmt.Sprint("job ", i), p)}, nil); reason != Accepted {
				t.Fatal(reason)
			}
		}
		now := rapid.SampledFrom([]int64{1000, 70_000}).Draw(r, "now")
		for _, id := range rapid.SliceOfN(rapid.Uint64Range(1, 12), 0, 4).Draw(r, "opened") {
			s.Apply(Entry{NowMS: now, Ops: []Op{&OpenGate{Job: JobID(id)}}}, nil)
		}
		for job := range s.Jobs(0) {
			var want []JobID
			for _, id := range s.KeyJobs(ConcurrencyKey(job.Header)) {
				other, _ := s.Job(id)
				if job.Gated && (!other.Gated || id < job.ID && other.StartMS() <= s.now) {
					want = append(want, id)
				}
			}
			alone, _ := s.Job(job.ID)
			if !slices.Equal(job.WaitsFor, want) || !slices.Equal(alone.WaitsFor, want) {
				t.Fatalf("job %d waits for %v in a list and for %v alone, want %v", job.ID, job.WaitsFor, alone.WaitsFor, want)
			}
		}
	})
}
