package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// running returns a job with one assigned task, and its attempt. Policy 1 is at
// most once.
func running(t *testing.T, policy uint32) (*world, HeldAttempt) {
	t.Helper()
	w := newWorld(t).do(worker(1), worker(2))
	p := plan(nil, []uint32{0})
	p.tasks[0].policy = policy
	w.submit(p)
	h := w.assign(0, 1)
	return w, h
}

func refused(t *testing.T, w *world, what string, want Reason, op Op) {
	t.Helper()
	before := snapshotOf(t, w.s)
	entries, digest, now := w.s.entries, w.s.digest, w.s.now
	if got := w.try(op); got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
	w.s.entries, w.s.digest, w.s.now = entries, digest, now // a refused entry may change only these
	if !bytes.Equal(before, snapshotOf(t, w.s)) {
		t.Errorf("%s: the refused operation changed the state", what)
	}
}

func TestOnlyTheLiveAttemptOfItsWorkerCounts(t *testing.T) {
	t.Parallel()
	other := func(f func(h *HeldAttempt)) HeldAttempt {
		h := hold(1, 0, 1, 1)
		f(&h)
		return h
	}
	for what, c := range map[string]struct {
		h    HeldAttempt
		want Reason
	}{
		"another worker":  {other(func(h *HeldAttempt) { h.Worker = 2 }), StaleAttempt},
		"no worker":       {other(func(h *HeldAttempt) { h.Worker = 0 }), StaleAttempt},
		"earlier attempt": {other(func(h *HeldAttempt) { h.Attempt = 0 }), StaleAttempt},
		"later attempt":   {other(func(h *HeldAttempt) { h.Attempt = 2 }), StaleAttempt},
		"blocked task":    {hold(1, 1, 0, 0), StaleAttempt},
		"unknown task":    {hold(1, 2, 1, 1), TaskNotFound},
		"unknown job":     {hold(2, 0, 1, 1), JobNotFound},
		"job zero":        {hold(0, 0, 1, 1), JobNotFound},
		"huge job":        {hold(1<<64-1, 1<<32-1, 1<<32-1, 1<<32-1), JobNotFound},
	} {
		w, _ := running(t, 1)
		held := []HeldAttempt{c.h}
		refused(t, w, what+": begin", c.want, &RecordStart{Items: held})
		refused(t, w, what+": complete", c.want, complete(c.h))
		refused(t, w, what+": fail", c.want, failed(c.h, NextRetry))
		refused(t, w, what+": requeue", c.want, &Requeue{Items: held})
		refused(t, w, what+": lose", c.want, &Lose{Items: held})
		if w.s.Live(c.h) {
			t.Errorf("%s: is live, want not live", what)
		}
	}
}

func TestACompletionIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	w, h := running(t, 0)
	w.do(complete(h))
	refused(t, w, "again", AlreadyAccepted, complete(h))
	refused(t, w, "failing afterwards", AlreadyAccepted, failed(h, NextDead))
	h.Worker = 2
	refused(t, w, "by another", StaleAttempt, complete(h))
}

func TestAZombieCompletesNothing(t *testing.T) {
	t.Parallel()
	w, zombie := running(t, 0)
	w.do(&Requeue{Items: []HeldAttempt{zombie}})
	refused(t, w, "while pending", StaleAttempt, complete(zombie))
	h := w.assign(0, 2)
	refused(t, w, "while another runs", StaleAttempt, complete(zombie))
	w.do(complete(h))
	refused(t, w, "after the other", StaleAttempt, complete(zombie))
}

func TestAnAtMostOnceAttemptThatStartedIsNeverRepeated(t *testing.T) {
	t.Parallel()
	w, h := running(t, 1)
	refused(t, w, "losing before the start", WrongState, &Lose{Items: []HeldAttempt{h}})
	w.do(&RecordStart{Items: []HeldAttempt{h}}).do(&RecordStart{Items: []HeldAttempt{h}})
	refused(t, w, "requeueing", WrongState, &Requeue{Items: []HeldAttempt{h}})
	refused(t, w, "retrying", WrongState, failed(h, NextRetry))
	w.do(&Lose{Items: []HeldAttempt{h}})
	refused(t, w, "completing a lost attempt", StaleAttempt, complete(h))
	if got, _ := w.s.Job(1); got.State != JobFailed || got.Failed() != 1 {
		t.Errorf("got job state %v", got.State)
	}
	w, h = running(t, 0)
	refused(t, w, "recording the start of a repeatable task", WrongState, &RecordStart{Items: []HeldAttempt{h}})
	w, h = running(t, 1)
	w.do(&Requeue{Items: []HeldAttempt{h}}) // it had not started
	w.do(&RecordStart{Items: []HeldAttempt{w.assign(0, 2)}})
}

// A worker that is stopping a job's attempts may requeue them after the failure:
// they end.
func TestAStoppingJobEndsWithItsLastAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(plan(nil, nil, nil, nil, []uint32{3}))
	held := []HeldAttempt{w.assign(0, 1), w.assign(1, 1), w.assign(2, 1)}
	w.do(failed(held[0], NextDead))
	refused(t, w, "retry in a stopping job", WrongState, failed(held[1], NextRetry))
	refused(t, w, "assigning in a stopping job", WrongState, &Assign{Items: []AssignItem{AssignItem(hold(1, 3, 1, 1))}})
	w.do(&Requeue{Items: held[1:2]})
	if j, _ := w.s.Job(1); j.State != JobRunning || j.Counts[Cancelled] != 3 {
		t.Errorf("got job state %v with %v", j.State, j.Counts)
	}
	w.do(complete(held[2]))
	if j, _ := w.s.Job(1); j.State != JobFailed || j.Error != "task t0 dead: exit 1" {
		t.Errorf("got job state %v: %q", j.State, j.Error)
	}
}

func TestContentsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	w, h := running(t, 0)
	long := strings.Repeat("x", maxText+1)
	fail := func(change func(it *FailItem)) Op {
		it := FailItem{HeldAttempt: h, Next: NextRetry}
		change(&it)
		return &Fail{Items: []FailItem{it}}
	}
	header := diamond().header()
	for what, op := range map[string]Op{
		"result":         &Complete{Items: []CompleteItem{{HeldAttempt: h, Result: make([]byte, maxResult+1)}}},
		"short digest":   &Complete{Items: []CompleteItem{{HeldAttempt: h, OutputSHA256: make([]byte, 31)}}},
		"long digest":    &Complete{Items: []CompleteItem{{HeldAttempt: h, OutputSHA256: make([]byte, 288)}}},
		"next 0":         fail(func(it *FailItem) { it.Next = 0 }),
		"next 4":         fail(func(it *FailItem) { it.Next = 4 }),
		"error":          fail(func(it *FailItem) { it.Error = long }),
		"cancel job":     &CancelJob{Job: 1, Reason: long},
		"fail job":       &FailJob{Job: 1, Error: long},
		"cancel task":    &CancelTask{Task: h.TaskRef, Reason: long},
		"fail task":      &FailTask{Task: ref(1, 1), Error: long},
		"leave":          &MarkWorkerDown{ID: 1, Reason: long},
		"join":           &RegisterWorker{ID: 3, Name: long, Incarnation: "i"},
		"labels":         &RegisterWorker{ID: 3, Name: "w3", Incarnation: "i", Labels: []Label{{"a", strings.Repeat("x", maxBlob)}}},
		"cluster":        &SetClusterID{ID: long},
		"replica":        &Replica{ServerID: long},
		"no replica":     &Replica{},
		"leader":         &StartTerm{Term: 1, ServerID: long},
		"key":            &BeginUpload{ID: 2, Key: long, Header: header, Total: 1},
		"no tasks":       &BeginUpload{ID: 2, Key: "k", Header: header},
		"long header":    &BeginUpload{ID: 2, Key: "k", Header: append(slices.Clone(header), make([]byte, maxBlob)...), Total: 1},
		"no policies":    &BeginUpload{ID: 2, Key: "k", Header: []byte{0x0a, 1, 'j'}, Total: 1},
		"invalid header": &BeginUpload{ID: 2, Key: "k", Header: []byte{0xff}, Total: 1},
	} {
		refused(t, w, what, Malformed, op)
	}
	w.do(fail(func(it *FailItem) { it.Due = -1 << 63 })) // any time is valid
	w.do(&Due{Items: []AttemptRef{h.AttemptRef}})
	if v, _ := w.s.Task(h.TaskRef); v.EndedMS != 0 {
		t.Errorf("got end time %d, the due time of the retry", v.EndedMS)
	}
}

func TestARepeatedKeyReplacesAnUploadAndNothingElse(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), diamond()
	w.do(p.submit(1, "k", 4)[:2]...)
	w.do(p.submit(2, "k", 4)[0])
	refused(t, w, "the replaced upload", JobNotFound, &SealUpload{Job: 1, Sum: p.sum()})
	refused(t, w, "too few tasks", OutOfOrder, &SealUpload{Job: 2, Sum: p.sum()})
	refused(t, w, "a chunk that does not follow", OutOfOrder, &AddChunk{Job: 2, Chunk: p.chunk(1, 2)})
	w.do(&AddChunk{Job: 2, Chunk: p.chunk(0, 4)})
	refused(t, w, "too many tasks", OutOfOrder, &AddChunk{Job: 2, Chunk: p.chunk(0, 4)})
	refused(t, w, "another sum", Malformed, &SealUpload{Job: 2, Sum: p.sum() + 1})
	w.do(&SealUpload{Job: 2, Sum: p.sum()})
	refused(t, w, "sealing twice", AlreadyEnded, &SealUpload{Job: 2, Sum: p.sum()})
	refused(t, w, "dropping what exists", AlreadyEnded, &DropUpload{Job: 2})
	refused(t, w, "a key of a job", KeyConflict, p.submit(3, "k", 4)[0])
	refused(t, w, "a job number out of order", OutOfOrder, p.submit(4, "new", 4)[0])
	w.do(&CancelJob{Job: 2}, &Archive{Items: []JobID{2}})
	refused(t, w, "the key of a forgotten job", KeyConflict, p.submit(3, "k", 4)[0])
	w.do(&ForgetKeys{Items: []string{"k"}}, p.submit(3, "k", 4)[0])
	if id, _, sealed, known := w.s.Key("k"); id != 3 || sealed || !known {
		t.Errorf("key: job %d, sealed %v, known %v", id, sealed, known)
	}
}

func TestAWorkerWithLiveAttemptsIsNotForgotten(t *testing.T) {
	t.Parallel()
	w, h := running(t, 0)
	w.do(&MarkWorkerDown{ID: 1, Reason: "silent"})
	refused(t, w, "forgetting", WrongState, &ForgetWorkers{IDs: []WorkerID{1}})
	refused(t, w, "assigning to a worker that is down", WorkerNotFound, &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 2, 1))}})
	w.do(&Requeue{Items: []HeldAttempt{h}}, &ForgetWorkers{IDs: []WorkerID{1}})
	refused(t, w, "again", WorkerNotFound, &ForgetWorkers{IDs: []WorkerID{1}})
	back := worker(1)
	refused(t, w, "joining under the old number", OutOfOrder, back)
	back.ID = 3
	w.do(back)
	if got := w.s.WorkerByName("w1"); got == nil || got.ID != 3 || w.s.Worker(1) != nil || w.s.Worker(2) == nil {
		t.Errorf("got w1 %+v", got)
	}
}

// Headers and chunks outlive their entry, and must not keep it in memory.
func TestTheStateDoesNotShareMemoryWithEntries(t *testing.T) {
	t.Parallel()
	s := New()
	for _, op := range diamond().submit(1, "k", 2) {
		data := Encode(nil, Entry{Ops: []Op{op}})
		s.Apply(mustDecode(t, data), nil)
		clear(data)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(4) {
		if got := s.Name(ref(1, i)); got != fmt.Sprintf("t%d", i) {
			t.Errorf("task %d: got name %q", i, got)
		}
	}
	restored(t, snapshotOf(t, s))
}

func TestFailuresAreCountedIfTheyCountAsRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(chain(1))
	for n, burns := range []bool{true, false, true, true} {
		f := failed(w.assign(0, 1), NextRetry)
		f.Items[0].CountsAsRetry = burns
		w.do(f)
		v, _ := w.s.Task(ref(1, 0))
		if want := []uint32{1, 1, 2, 3}[n]; v.Failures != want {
			t.Errorf("after failure %d: got %d counted failures, want %d", n+1, v.Failures, want)
		}
		w.do(&Due{Items: []AttemptRef{att(1, 0, v.Attempt)}})
	}
}

// A leader has several entries in flight. If one cannot be stored, the later ones
// have no base.
func TestAnEntryAfterAMissingOneIsRejectedAsAWhole(t *testing.T) {
	t.Parallel()
	ahead := New()
	entries := make([]Entry, 0, 4)
	for i := range WorkerID(4) {
		d := NewEntryBuilder(ahead, int64(i), new(Effects))
		if r := d.Do(worker(i + 1)); r != Accepted {
			t.Fatal(r)
		}
		e, _, _ := d.Finish()
		entries = append(entries, e)
	}
	s := New()
	for i, e := range entries {
		want := Accepted
		if i == 1 {
			continue // a lost entry
		} else if i > 1 {
			want = OutOfOrder
		}
		data := Encode(nil, e)
		got, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Apply(got, new(Effects)); r != want {
			t.Errorf("entry %d, built after %d others: got %v, want %v", i, got.After, r, want)
		}
	}
	if s.Worker(1) == nil || s.Worker(2) != nil || s.Worker(3) != nil || s.Worker(4) != nil {
		t.Error("an entry without its predecessor was applied in part")
	}
	d := NewEntryBuilder(s, 9, new(Effects)) // the next leader continues from the current state
	if r := d.Do(worker(2)); r != Accepted {
		t.Fatal(r)
	}
	e, _, _ := d.Finish()
	if r := New().Apply(e, nil); r != OutOfOrder {
		t.Errorf("an entry after %d others, applied to an empty state: got %v", e.After, r)
	}
}
