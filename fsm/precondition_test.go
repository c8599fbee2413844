package fsm

import "testing"

// A client that doesn't know the outcome of a retry repeats it, perhaps after
// the retried task has failed again.
func TestARetryTakesEffectOncePerKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil)))
	w.do(failed(w.assign(0, 1), NextDead))
	retry := &Revive{Job: 1, Precondition: Precondition{Key: "k", KeyExpires: 50, Digest: [16]byte{3}}}
	w.do(retry)
	wantStates(w, "retried", Pending, Pending)
	refused(t, w, "while it runs", KeyConflict, retry)
	w.do(failed(w.assign(0, 1), NextDead))
	refused(t, w, "after it failed again", KeyConflict, retry)
	refused(t, w, "a purge with the key of a retry", KeyConflict, &Purge{Job: 1, Precondition: Precondition{Key: "k"}})
	wantStates(w, "repeated", Dead, Pending)

	again := restored(t, snapshotOf(t, w.s))
	sameState(t, "restored", again, w.s)
	if c, known := again.ChangeOf("k"); !known || c != (KeyedChange{Job: 1, Version: 2, Digest: [16]byte{3}}) {
		t.Errorf("the key belongs to %+v after a restore", c)
	}
	if r := again.Apply(Entry{Ops: []Op{retry}}, nil); r != KeyConflict {
		t.Errorf("repeated after a restore: %v", r)
	}
	w.do(&ForgetKeys{Items: []string{"k"}}).do(retry)
	wantStates(w, "forgotten and retried", Pending, Pending)
}

func TestAPurgeKeepsItsNumberOfDeadLettersWithItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, nil)))
	for i := range uint32(3) {
		w.do(failed(w.assign(i, 1), NextDead))
	}
	w.do(&Purge{Job: 1, Tasks: []uint32{2}})
	purge := &Purge{Job: 1, Precondition: Precondition{IfVersion: 2, Key: "p"}}
	w.do(purge)
	if c, known := restored(t, snapshotOf(t, w.s)).ChangeOf("p"); !known || c != (KeyedChange{Job: 1, Version: 3, Purged: 2}) {
		t.Errorf("the key belongs to %+v", c)
	}
	w.do(&Revive{Job: 1, Tasks: []uint32{0}})
	w.do(failed(w.assign(0, 1), NextDead))
	refused(t, w, "again", KeyConflict, purge)
	wantStates(w, "purged once", Dead, Failed, Failed)
}

func TestEveryChangeOfAJobRequiresItsVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(going(plan(nil, nil, nil)))
	w.do(failed(w.assign(0, 1), NextDead))
	w.do(failed(w.assign(1, 1), NextDead))
	changes := func(version uint64) []Op {
		p := Precondition{IfVersion: version}
		return []Op{
			&Purge{Job: 1, Tasks: []uint32{0}, Precondition: p},
			&Revive{Job: 1, Tasks: []uint32{1}, Precondition: p},
			&Update{Job: 1, Task: 2, Precondition: p, Set: SetTimeout, TimeoutMS: 5},
		}
	}
	for n := range changes(0) {
		now := uint64(n + 1)
		for _, other := range []uint64{now - 1, now + 1} {
			if other > 0 {
				refused(t, w, "another version", VersionMismatch, changes(other)[n])
			}
		}
		w.do(changes(now)[n])
	}
	if j, _ := w.s.Job(1); j.Version != 4 {
		t.Errorf("the job has version %d after three changes, want 4", j.Version)
	}
}
