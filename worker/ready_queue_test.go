package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// starts records in which order tasks begin.
type starts struct {
	mu    sync.Mutex
	order []uint32
}

func (s *starts) handler(length time.Duration) Handler {
	return func(_ context.Context, t *Task) ([]byte, error) {
		s.mu.Lock()
		s.order = append(s.order, t.Index)
		s.mu.Unlock()
		time.Sleep(length) // virtual
		return nil, nil
	}
}

func TestWaitingAttemptsStartByPriorityThenByArrival(t *testing.T) {
	t.Parallel()
	var began starts
	inBubble(t, Config{Slots: 1}, map[string]Handler{"wait": began.handler(time.Second)}, func(b *harness, l *leaderEnd) {
		t := b.t
		of := func(task uint32, p dtaskv1.Priority) work {
			return work{task: task, typ: "wait", policy: &dtaskv1.TaskPolicy{Priority: p}}
		}
		l.assign(t,
			of(1, dtaskv1.Priority_PRIORITY_LOW),
			of(2, dtaskv1.Priority_PRIORITY_LOW),
			of(3, dtaskv1.Priority_PRIORITY_UNSPECIFIED), // of a job without one: normal
			of(4, dtaskv1.Priority_PRIORITY_LOW),
		)
		synctest.Wait()
		l.assign(t, of(5, dtaskv1.Priority_PRIORITY_URGENT), of(6, dtaskv1.Priority_PRIORITY_HIGH), of(7, dtaskv1.Priority_PRIORITY_URGENT), of(8, 99))
		l.outcomes(t, 8)
		began.mu.Lock()
		defer began.mu.Unlock()
		if want := []uint32{3, 5, 7, 8, 6, 1, 2, 4}; !slices.Equal(began.order, want) {
			t.Errorf("tasks began in the order %v, want %v", began.order, want)
		}
	})
}

// Urgent tasks arrive as fast as they end: without a turn by age, what arrived before them
// would wait forever.
func TestEverySixteenthStartIsTheOldestWaitingAttempt(t *testing.T) {
	t.Parallel()
	var began starts
	inBubble(t, Config{Slots: 1}, map[string]Handler{"wait": began.handler(time.Second)}, func(b *harness, l *leaderEnd) {
		t := b.t
		list := []work{
			{task: 0, typ: "wait", policy: &dtaskv1.TaskPolicy{Priority: dtaskv1.Priority_PRIORITY_LOW}},
			{task: 1, typ: "wait", policy: &dtaskv1.TaskPolicy{Priority: dtaskv1.Priority_PRIORITY_NORMAL}},
		}
		for i := uint32(100); i < 140; i++ {
			list = append(list, work{task: i, typ: "wait", policy: &dtaskv1.TaskPolicy{Priority: dtaskv1.Priority_PRIORITY_URGENT}})
		}
		l.assign(t, list...)
		l.outcomes(t, len(list))
		began.mu.Lock()
		defer began.mu.Unlock()
		if first, second := began.order[15], began.order[31]; first != 0 || second != 1 {
			t.Errorf("the starts 16 and 32 were those of tasks %d and %d, want 0 and 1: %v", first, second, began.order)
		}
	})
}

// A worker with a full queue reports several outcomes at once, so that they
// share an entry of the log; the last ones of a burst come immediately.
func TestOutcomesShareMessagesWhileOthersWaitForASlot(t *testing.T) {
	t.Parallel()
	const tasks, length = 100, time.Millisecond
	var began starts
	inBubble(t, Config{Slots: 1}, map[string]Handler{"wait": began.handler(length)}, func(b *harness, l *leaderEnd) {
		t := b.t
		var list []work
		for i := range uint32(tasks) {
			list = append(list, work{task: i, typ: "wait"})
		}
		from := time.Now()
		l.assign(t, list...)
		messages, got := 0, 0
		for got < tasks {
			m := l.next(t, "outcomes", func(m *dtaskv1.SessionRequest) bool { return len(m.GetReports().GetOutcomes().GetJobs()) > 0 })
			messages++
			got += len(m.GetReports().GetOutcomes().GetJobs())
		}
		if messages > tasks/4 {
			t.Errorf("%d outcomes came in %d messages", got, messages)
		}
		if took := time.Since(from); took > tasks*length+outcomeDelay {
			t.Errorf("the last outcome came after %v", took)
		}
	})
}

func TestAFailureIsReportedImmediately(t *testing.T) {
	t.Parallel()
	handlers := map[string]Handler{
		"fail": func(context.Context, *Task) ([]byte, error) { return nil, fmt.Errorf("no") },
		"wait": func(context.Context, *Task) ([]byte, error) { time.Sleep(time.Second); return nil, nil }, // virtual
	}
	inBubble(t, Config{Slots: 1}, handlers, func(b *harness, l *leaderEnd) {
		t := b.t
		from := time.Now()
		l.assign(t, work{task: 1, typ: "fail"}, work{task: 2, typ: "wait"}, work{task: 3, typ: "wait"}, work{task: 4, typ: "wait"})
		if o := l.outcome(t); o.GetAttempt().GetTask() != 1 || time.Since(from) >= outcomeDelay {
			t.Errorf("got %v after %v", o, time.Since(from))
		}
	})
}

func TestAWorkerAnnouncesTheTypesThatItHandles(t *testing.T) {
	t.Parallel()
	handlers := map[string]Handler{"resize": nil, "crop": nil}
	for name := range handlers {
		handlers[name] = func(context.Context, *Task) ([]byte, error) { return nil, nil }
	}
	inBubble(t, Config{Slots: 1}, handlers, func(b *harness, l *leaderEnd) {
		// The test binary calls RunSupervisor: it runs commands, too.
		if got, want := l.hello.GetHello().GetTypes(), []string{"crop", "resize", "command"}; !slices.Equal(got, want) {
			b.t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A list keeps its memory while attempts come and go, and loses none of them when it moves.
func TestAWaitingListIsInOrderAndKeepsItsMemory(t *testing.T) {
	t.Parallel()
	var l waitingList
	pushed, popped := uint64(0), uint64(0)
	push := func(n int) {
		for range n {
			pushed++
			l.push(&attempt{arrival: pushed})
		}
	}
	pop := func(n int) {
		for range n {
			popped++
			if a := l.pop(); a.arrival != popped {
				t.Fatalf("got attempt %d, want %d", a.arrival, popped)
			}
		}
	}
	push(100)
	for range 1000 {
		pop(70)
		push(70)
		if uint64(l.len()) != pushed-popped {
			t.Fatalf("%d attempts wait, want %d", l.len(), pushed-popped)
		}
	}
	if cap(l.attempts) > 512 {
		t.Errorf("100 attempts take the space of %d", cap(l.attempts))
	}
	pop(100)
	push(2 * maxKeptWaiting)
	pop(2 * maxKeptWaiting)
	if l.len() != 0 || l.attempts != nil {
		t.Errorf("an empty list keeps the space of %d attempts", cap(l.attempts))
	}
}
