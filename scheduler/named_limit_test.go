package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func uses(names ...string) scheduler.Demand { return scheduler.Demand{Uses: names} }

// pushTo pushes n tasks of a demand, from a number on.
func pushTo(s *scheduler.Scheduler, d scheduler.Demand, first, n int) scheduler.ClassID {
	c := s.Class(d)
	for i := range n {
		s.Push(task(first+i), c, scheduler.Normal, 0)
	}
	return c
}

func TestANamedLimitCountsTheTasksOfAllClasses(t *testing.T) {
	t.Parallel()
	s := fleet(2, 4)
	pushTo(s, uses("db"), 0, 3)
	pushTo(s, scheduler.Demand{Uses: []string{"db"}, Owner: "bob"}, 10, 3)
	s.SetNamedLimit("db", 2)
	first := mustNext(t, s)
	mustNext(t, s)
	mustNotNext(t, s)
	s.Release(first.Worker, first.Class, first.Priority)
	mustNext(t, s)
	mustNotNext(t, s)
	s.SetNamedLimit("db", 4) // takes effect at once
	mustNext(t, s)
	mustNext(t, s)
	mustNotNext(t, s)
	s.SetNamedLimit("db", 1) // attempts that are too many continue
	if l := s.LimitLoads()[0]; l.Held != 4 || l.Running != 1 || l.Waiting != 1 {
		t.Errorf("got %+v", l)
	}
}

func TestEachKeyOfALimitHasACounterOfItsOwn(t *testing.T) {
	t.Parallel()
	s := fleet(1, 8)
	for i, key := range []string{"tenant/acme", "tenant/initech"} {
		pushTo(s, uses(key), 10*i, 2)
		s.SetNamedLimit(key, 1)
	}
	if a, b := mustNext(t, s), mustNext(t, s); a.Task != task(0) || b.Task != task(10) {
		t.Errorf("got %+v and %+v", a, b)
	}
	mustNotNext(t, s)
}

// Limits are taken all or none: what waits for one holds nothing of another.
func TestATaskWithSeveralLimitsTakesAllOrNone(t *testing.T) {
	t.Parallel()
	s := fleet(1, 8)
	pushTo(s, uses("api"), 0, 1)
	pushTo(s, uses("api", "db"), 10, 1)
	pushTo(s, uses("db"), 20, 1)
	s.SetNamedLimit("api", 1)
	s.SetNamedLimit("db", 1)
	api := mustNext(t, s)
	if a := mustNext(t, s); a.Task != task(20) {
		t.Errorf("got %+v, want the task that waits for db only", a)
	}
	mustNotNext(t, s)
	s.Release(api.Worker, api.Class, api.Priority)
	mustNotNext(t, s)
}

func TestATaskWithALimitIsNeverPrefetched(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	s.SetPrefetch(1, 4)
	pushTo(s, uses("db"), 0, 2)
	s.SetNamedLimit("db", 5)
	mustNext(t, s)
	mustNotNext(t, s)
}

func TestAnAttemptThatMayStillRunCountsTowardsANamedLimit(t *testing.T) {
	t.Parallel()
	s := fleet(1, 4)
	c := pushTo(s, uses("db"), 0, 1)
	s.SetNamedLimit("db", 1)
	s.Reserve(c)
	mustNotNext(t, s)
	s.Unreserve(c)
	mustNext(t, s)
}

func TestPausedLimitsLetNothingStart(t *testing.T) {
	t.Parallel()
	s := fleet(1, 4)
	s.PauseLimits(true)
	pushTo(s, uses("db"), 0, 1)
	s.SetNamedLimit("db", 1)
	pushTo(s, scheduler.Demand{}, 10, 1)
	if a := mustNext(t, s); a.Task != task(10) {
		t.Errorf("got %+v, want the task without a limit", a)
	}
	mustNotNext(t, s)
	s.PauseLimits(false)
	mustNext(t, s)
}

func TestEachStartTakesATokenOfARate(t *testing.T) {
	t.Parallel()
	s := fleet(1, 8)
	pushTo(s, uses("api", "db"), 0, 5)
	s.SetTokens("api", 2)
	first := mustNext(t, s)
	mustNext(t, s)
	mustNotNext(t, s)
	s.Release(first.Worker, first.Class, first.Priority) // an end gives no token back
	mustNotNext(t, s)
	var spent []string
	s.Spent(func(name string, taken, left uint32) {
		spent = append(spent, fmt.Sprintf("%s: %d taken, %d left", name, taken, left))
	})
	if want := []string{"api: 2 taken, 0 left"}; !slices.Equal(spent, want) {
		t.Errorf("spent %q, want %q", spent, want)
	}
	s.Spent(func(name string, _, _ uint32) { t.Errorf("tokens of %s are spent twice", name) })
	s.SetTokens("api", 1)
	mustNext(t, s)
	mustNotNext(t, s)
	s.RemoveRate("api")
	mustNext(t, s)
	if _, rated := s.Tokens("api"); rated {
		t.Error("the rate is left")
	}
}

func TestALimitLivesAsLongAsAClassThatUsesIt(t *testing.T) {
	t.Parallel()
	s := fleet(1, 4)
	c := pushTo(s, uses("db"), 0, 1)
	s.SetNamedLimit("db", 1)
	a := mustNext(t, s)
	s.Retire(c)
	if got := s.NamedLimits(); !slices.Equal(got, []string{"db"}) {
		t.Fatalf("got %v: the attempt still counts", got)
	}
	s.Release(a.Worker, a.Class, a.Priority)
	if got := s.NamedLimits(); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	s.SetNamedLimit("db", 1) // of a limit that no class uses: no effect
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// The ready queue that waits loses its task, and the last attempt ends before it gets another one.
func TestATaskThatBecomesReadyAfterTheLastEndOfItsQueueStarts(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.SetWaits(0, 16)
	s.AddWorker(1, scheduler.Capacity{Slots: 4, Resources: cpus(4)})
	s.SetQueue("q", scheduler.Queue{Max: cpus(1)})
	c := pushTo(s, scheduler.Demand{Queue: "q", Resources: cpus(1)}, 0, 2)
	first := mustNext(t, s)
	mustNotNext(t, s)
	s.Sweep(func(scheduler.TaskRef) bool { return false })
	s.Release(first.Worker, first.Class, first.Priority)
	s.Push(task(3), c, scheduler.Normal, 0)
	if a := mustNext(t, s); a.Task != task(3) {
		t.Errorf("task %+v starts, want the last one", a.Task)
	}
}
