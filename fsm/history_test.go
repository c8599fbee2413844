package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

func TestAHistoryKeepsTheFirstAttemptsAndTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	for n := range uint32(120) {
		h := w.assign(0, 1)
		w.do(&Fail{Items: []FailItem{{HeldAttempt: h, Next: NextRetry, DurationMS: 3, Error: fmt.Sprint("exit ", n+1)}}}, &Due{Items: []AttemptRef{h.AttemptRef}})
		if n == 60 {
			w.do(&CancelJob{Job: 1, Reason: "not needed"}).do(&Revive{Job: 1})
		}
		if n%40 == 7 {
			w.s = restored(t, snapshotOf(t, w.s))
		}
		list := w.s.History(ref(1, 0))
		if len(list) != int(min(n+1, maxHistory)) {
			t.Fatalf("got %d attempts after %d", len(list), n+1)
		}
		for i, a := range list {
			number := uint32(i + 1)
			if i == len(list)-1 {
				number = n + 1
			}
			if a.Number != number || a.Worker != 1 || a.Error != fmt.Sprint("exit ", number) || a.EndedMS-a.StartedMS != 3 {
				t.Fatalf("after %d: got attempt %d of the history %+v", n+1, i, a)
			}
		}
	}
	before := w.s.History(ref(1, 0))
	w.do(&Complete{Items: []CompleteItem{{HeldAttempt: w.assign(0, 1), Result: []byte("r")}}})
	w.s = restored(t, snapshotOf(t, w.s))
	if got := w.s.History(ref(1, 0)); !slices.Equal(got, before) {
		t.Errorf("completed task: got history %v, want %v", got, before)
	}
	if got := w.s.Result(ref(1, 0)); string(got.Data) != "r" || got.Error != "" {
		t.Errorf("completed task: got result %+v", got)
	}
}

func TestATaskThatSucceedsAtOnceHasNoNoteForItsAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	w.do(complete(w.assign(0, 1)))
	if n := w.s.jobs.get(1).notes.size; n != 0 {
		t.Errorf("a task without a result: %d bytes of notes", n)
	}
	w.do(&Complete{Items: []CompleteItem{{HeldAttempt: w.assign(1, 1), Result: []byte("r")}}})
	if n := w.s.jobs.get(1).notes.size; n != 5 { // kind, length, size of the output, length of its digest, result
		t.Errorf("a task with a result of one byte: %d bytes of notes", n)
	}
}

func TestALostAttemptBeganWhenItWasAssigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	h := w.assign(0, 1)
	v, _ := w.s.Task(ref(1, 0))
	assigned := v.StartedMS
	w.do(&RequeueLost{Items: []HeldAttempt{h}})
	if got := w.s.History(ref(1, 0)); len(got) != 1 || assigned == 0 || got[0].StartedMS != assigned || got[0].EndedMS <= assigned {
		t.Errorf("assigned at %d, got history %+v", assigned, got)
	}
}

// Tasks that were cancelled or timed out in the queue keep the history of their
// attempts.
func TestAHistoryOutlivesTheEndOfItsTask(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ops  []Op
		want string
	}{
		"task cancelled":             {[]Op{&CancelTask{Task: ref(1, 0), Reason: "not needed"}}, "not needed"},
		"task cancelled for nothing": {[]Op{&CancelTask{Task: ref(1, 0)}}, ""},
		"job cancelled":              {[]Op{&CancelJob{Job: 1, Reason: "all of it"}}, "all of it"},
		"waited too long":            {[]Op{&FailTask{Task: ref(1, 0), Error: "late"}}, "late"},
		"cancelled twice":            {[]Op{&CancelTask{Task: ref(1, 0)}, &Revive{Job: 1, Tasks: []uint32{0}}, &CancelTask{Task: ref(1, 0), Reason: "again"}}, "again"},
		"cancelled and revived":      {[]Op{&CancelTask{Task: ref(1, 0)}, &Revive{Job: 1, Tasks: []uint32{0}}}, "exit 1"},
		"another task stops the job": {[]Op{failed(hold(1, 1, 1, 1), NextDead)}, "job stopped: task t1 failed"},
	} {
		w := newWorld(t).do(worker(1))
		w.submit(plan(nil, nil, nil))
		w.assign(1, 1)
		w.do(failed(w.assign(0, 1), NextRetry)).do(c.ops...)
		w.s = restored(t, snapshotOf(t, w.s))
		if got := w.s.History(ref(1, 0)); len(got) != 1 || got[0].Number != 1 || got[0].Error != "exit 1" {
			t.Errorf("%s: history %+v", name, got)
		}
		if got := w.s.Result(ref(1, 0)).Error; got != c.want {
			t.Errorf("%s: error %q, want %q", name, got, c.want)
		}
		if got := w.s.History(ref(1, 2)); got != nil {
			t.Errorf("%s: task that never ran: got history %v", name, got)
		}
	}
}

func TestALossInAStoppingJobIsInTheHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil))
	h := w.assign(1, 1)
	w.do(failed(w.assign(0, 1), NextDead)).do(&RequeueLost{Items: []HeldAttempt{h}})
	if got := w.s.History(ref(1, 1)); len(got) != 1 || got[0].Error != workerLost {
		t.Errorf("history %+v", got)
	}
	if got := w.s.Result(ref(1, 1)).Error; w.state(1, 1) != Cancelled || got != "job stopped" {
		t.Errorf("is %v: %q", w.state(1, 1), got)
	}
}

func TestLossesSaturate(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil))
	for range 300 {
		w.do(&RequeueLost{Items: []HeldAttempt{w.assign(0, 1)}})
	}
	if v, _ := w.s.Task(ref(1, 0)); v.Losses != 255 || v.Failures != 0 {
		t.Errorf("got task %+v", v)
	}
}

// An error of many attempts is stored once, although notes of attempts lie
// between.
func TestAnErrorOfManyAttemptsIsStoredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(make([][]uint32, 100)...)))
	why := string(bytes.Repeat([]byte("x"), 1000))
	for i := range uint32(100) {
		w.do(&Fail{Items: []FailItem{{HeldAttempt: w.assign(i, 1), Next: NextDead, Error: why}}})
		if i == 50 {
			w.s = restored(t, snapshotOf(t, w.s))
		}
	}
	if n := w.s.jobs.get(1).notes.size; n > 5000 {
		t.Errorf("notes use %d bytes", n)
	}
}

// Snapshots with invalid links are refused and never followed.
func TestADamagedHistoryIsRefused(t *testing.T) {
	t.Parallel()
	attempt := func(depth uint64, before, text uint32) []byte {
		var e encoder
		for _, v := range []uint64{depth, uint64(before), 1, 1, 2, 4, uint64(text)} {
			e.u64(v)
		}
		return e.b
	}
	end := func(before, text uint32) []byte {
		var e encoder
		e.u64(uint64(before))
		e.u64(uint64(text))
		return e.b
	}
	// Before each of these stand a text at 1, an attempt at 4, a result at 13.
	for name, c := range map[string]struct {
		kind  noteKind
		value []byte
		good  bool
	}{
		"attempt":               {noteAttempt, attempt(2, 4, 1), true},
		"first attempt":         {noteAttempt, attempt(1, 0, 0), true},
		"end":                   {noteEnd, end(4, 1), true},
		"itself before":         {noteAttempt, attempt(2, 17, 1), false},
		"text before":           {noteAttempt, attempt(2, 1, 1), false},
		"nothing before":        {noteAttempt, attempt(2, 0, 1), false},
		"no depth":              {noteAttempt, attempt(0, 0, 1), false},
		"huge depth":            {noteAttempt, attempt(1<<63, 4, 1), false},
		"skipped depth":         {noteAttempt, attempt(3, 4, 1), false},
		"beyond the notes":      {noteAttempt, attempt(2, 4000, 1), false},
		"attempt as text":       {noteAttempt, attempt(2, 4, 4), false},
		"itself as text":        {noteAttempt, attempt(2, 4, 17), false},
		"end without attempt":   {noteEnd, end(0, 1), false},
		"end of itself":         {noteEnd, end(17, 1), false},
		"end of a result":       {noteEnd, end(13, 1), false},
		"end with a bad text":   {noteEnd, end(4, 2), false},
		"recovered":             {noteRecovered, end(4, 13), true},
		"recovered, no result":  {noteRecovered, end(4, 0), true},
		"recovered, no attempt": {noteRecovered, end(0, 13), false},
		"recovered by itself":   {noteRecovered, end(4, 17), false},
		"recovered by a text":   {noteRecovered, end(4, 1), false},
		"recovered from a text": {noteRecovered, end(1, 13), false},
		"text within a text":    {noteAttempt, attempt(2, 4, 3), false},
		"unknown end of a text": {noteEnd, end(4, 99), false},
	} {
		w := newWorld(t).do(worker(1))
		w.submit(plan(nil))
		w.do(failed(w.assign(0, 1), NextDead))
		j := w.s.jobs.write(w.s.own, 1)
		j.notes = notes{}
		at := []uint32{
			j.notes.add(w.s.own, noteError, []byte("a")), j.notes.add(w.s.own, noteAttempt, attempt(1, 0, 1)),
			j.notes.add(w.s.own, noteResult, []byte{0, 0}), j.notes.add(w.s.own, c.kind, c.value),
		}
		if want := []uint32{1, 4, 13, 17}; !slices.Equal(at, want) {
			t.Fatalf("notes at %v, want %v", at, want)
		}
		j.records.write(w.s.own, 0).note = at[3]
		var b bytes.Buffer
		if err := w.s.WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSnapshot(&b)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			s.History(ref(1, 0))
		}
	}
}
