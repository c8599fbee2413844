package fsm

import (
	"bytes"
	"testing"
)

// pureWorld has a pure task (0) whose result is remembered, others with the same
// key (1), the same key and another output (2), and another key (3), and a
// dependent of the first of them (4).
func pureWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t).do(worker(1))
	p := plan(nil, nil, nil, nil, []uint32{1})
	for i, body := range [][]byte{pureBody("k", "/o"), pureBody("k", "/o"), pureBody("k", "/other"), pureBody("j", "/o"), nil} {
		if p.tasks[i].body = body; body != nil {
			p.tasks[i].policy = 4
		}
	}
	w.submit(p)
	h := w.assign(0, 1)
	w.do(&Complete{Items: []CompleteItem{{HeldAttempt: h, Result: []byte("r"), OutputSize: 7, OutputSHA256: bytes.Repeat([]byte{9}, 32)}}})
	w.do(&RememberResults{Items: []RememberItem{{ref(1, 0), 1000}}})
	return w
}

func TestAPureTaskEndsWithTheResultUnderItsKey(t *testing.T) {
	t.Parallel()
	w := pureWorld(t)
	before := w.assign(1, 1)
	w.do(&Requeue{Items: []HeldAttempt{before}}).do(&ReuseResults{Items: []TaskRef{ref(1, 1)}})
	r := w.s.Result(ref(1, 1))
	if string(r.Data) != "r" || r.OutputSize != 7 || len(r.OutputSHA256) != 32 || r.ReusedJob != 1 || r.ReusedTask != "t0" {
		t.Errorf("got result %+v", r)
	}
	wantStates(w, "reused", Completed, Completed, Pending, Pending, Pending)
	refused(t, w, "a late completion of an attempt", StaleAttempt, complete(before))
	refused(t, w, "reusing again", WrongState, &ReuseResults{Items: []TaskRef{ref(1, 1)}})
	refused(t, w, "remembering a reused result", WrongState, &RememberResults{Items: []RememberItem{{ref(1, 1), 1000}}})
	refused(t, w, "another output", WrongState, &ReuseResults{Items: []TaskRef{ref(1, 2)}})
	refused(t, w, "another key", WrongState, &ReuseResults{Items: []TaskRef{ref(1, 3)}})
	refused(t, w, "a task that is not pure", WrongState, &ReuseResults{Items: []TaskRef{ref(1, 4)}})
	w.do(&CancelTask{Task: ref(1, 2)})
	refused(t, w, "a cancelled task", WrongState, &ReuseResults{Items: []TaskRef{ref(1, 2)}})
}

func TestARememberedResultExpiresAndIsForgotten(t *testing.T) {
	t.Parallel()
	w := pureWorld(t)
	at := ref(1, 1)
	if !w.s.Reusable(at, 999) || w.s.Reusable(at, 1000) {
		t.Error("got a reusable result at its expiry")
	}
	const key = "\x00k"
	if got := w.s.ExpiredResults(shardOf(key), 999, 9); got != nil {
		t.Errorf("expired at 999: got %q", got)
	}
	if got := w.s.ExpiredResults(shardOf(key), 1000, 9); len(got) != 1 || got[0] != key {
		t.Errorf("expired at 1000: got %q", got)
	}
	w.now = 990
	refused(t, w, "reusing an expired result", WrongState, &ReuseResults{Items: []TaskRef{at}})
	refused(t, w, "remembering an expired result", Malformed, &RememberResults{Items: []RememberItem{{ref(1, 0), 5}}})
	w.do(&RememberResults{Items: []RememberItem{{ref(1, 0), 2000}}})
	if n, size := w.s.Results(); n != 1 || size == 0 {
		t.Errorf("got %d results of %d bytes", n, size)
	}
	again := restored(t, snapshotOf(t, w.s))
	sameState(t, "restored", again, w.s)
	if n, size := again.Results(); n != 1 || size != w.s.results.bytes || !again.Reusable(at, 1999) {
		t.Errorf("restored: got %d results of %d bytes", n, size)
	}
	if got := w.s.ResultsByExpiry(5); len(got) != 1 || got[0] != key {
		t.Errorf("soonest: %q", got)
	}
	w.do(&ForgetResults{Items: []string{key}})
	refused(t, w, "forgetting a result again", KeyNotFound, &ForgetResults{Items: []string{key}})
	if n, size := w.s.Results(); n != 0 || size != 0 {
		t.Errorf("got %d results of %d bytes, want none", n, size)
	}
}

func TestADamagedResultIsDetectedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	w := pureWorld(t)
	for _, op := range []Op{&ReuseResults{Items: []TaskRef{ref(1, 1)}}, &ForgetResults{Items: []string{"\x00k"}}} {
		good, bad := w.s.Fork(), w.s.Fork()
		x, _ := bad.results.byKey.get("\x00k")
		x.value = append([]byte{}, x.value...)
		x.value[len(x.value)-1] ^= 1
		bad.results.byKey.set(bad.own, "\x00k", x)
		good.Apply(Entry{Ops: []Op{op}}, nil)
		bad.Apply(Entry{Ops: []Op{op}}, nil)
		if good.Digest() == bad.Digest() {
			t.Errorf("%T does not detect the damage", op)
		}
	}
}

// A job could otherwise get the results of another team by naming its owner.
func TestAResultIsNotReusedInAnotherNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	for _, namespace := range []string{"etl", "ml", "", "etl"} {
		p := plan(nil)
		p.namespace, p.tasks[0].body, p.tasks[0].policy = namespace, pureBody("k", "/o"), 4
		w.submit(p)
	}
	h := w.assign(0, 1)
	w.do(&Complete{Items: []CompleteItem{{HeldAttempt: h, Result: []byte("r")}}})
	w.do(&RememberResults{Items: []RememberItem{{ref(1, 0), 1000}}})
	for _, job := range []JobID{2, 3} {
		refused(t, w, "reusing a result of another namespace", WrongState, &ReuseResults{Items: []TaskRef{ref(job, 0)}})
	}
	w.do(&ReuseResults{Items: []TaskRef{ref(4, 0)}})
	if again := restored(t, snapshotOf(t, w.s)); again.Reusable(ref(2, 0), 999) || again.Reusable(ref(3, 0), 999) {
		t.Error("restored: a result of another namespace is reusable")
	}
}
