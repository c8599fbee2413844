package fsm

import (
	"fmt"
	"slices"
	"testing"
)

func TestAJobThatUsesAnUnknownLimitIsRejected(t *testing.T) {
	t.Parallel()
	s := New()
	mustApply(t, s, &SetLevel{Level: namedLimitLevel}, &SetLimit{Name: "tenant/*", LimitSettings: LimitSettings{Running: 2}, AtMS: 1})
	p := plan(nil)
	p.uses = []string{"tenant/acme"}
	mustApply(t, s, p.submit(1, "known", 1)...)
	for id, use := range []string{"tenant", "db", "tenants/acme"} {
		p.uses = []string{use}
		ops := p.submit(JobID(id+2), use, 1)
		mustApply(t, s, ops[:len(ops)-1]...)
		if r := apply(s, ops[len(ops)-1]); r != LimitNotFound {
			t.Errorf("%s: got %v, want %v", use, r, LimitNotFound)
		}
	}
}

func TestALimitIsDeletedOnlyWhenNoOpenJobUsesIt(t *testing.T) {
	t.Parallel()
	s := New()
	mustApply(t, s, &SetLevel{Level: namedLimitLevel}, &SetLimit{Name: "tenant/*", LimitSettings: LimitSettings{Running: 2}, AtMS: 1})
	p := plan(nil)
	p.uses = []string{"tenant/acme"}
	mustApply(t, s, p.submit(1, "key", 1)...)
	if r := apply(s, &DeleteLimit{Name: "tenant/*"}); r != WrongState {
		t.Errorf("with an open job: got %v, want %v", r, WrongState)
	}
	mustApply(t, s, &CancelJob{Job: 1}, &DeleteLimit{Name: "tenant/*", IfVersion: 1})
	if r := apply(s, &DeleteLimit{Name: "tenant/*"}); r != LimitNotFound {
		t.Errorf("again: got %v, want %v", r, LimitNotFound)
	}
}

func TestTheTenThousandAndFirstLimitIsRejected(t *testing.T) {
	t.Parallel()
	s := New()
	set := func(i int, running uint32) Op {
		return &SetLimit{Name: fmt.Sprintf("l%d", i), LimitSettings: LimitSettings{Running: running}, AtMS: 1}
	}
	mustApply(t, s, &SetLevel{Level: namedLimitLevel})
	for i := range maxNamedLimits {
		mustApply(t, s, set(i, 1))
	}
	if r := apply(s, set(maxNamedLimits, 1)); r != LimitExceeded {
		t.Errorf("got %v, want %v", r, LimitExceeded)
	}
	mustApply(t, s, set(7, 2)) // it exists already
	old := restored(t, snapshotOf(t, s))
	if got := len(slices.Collect(old.NamedLimits())); got != maxNamedLimits || old.NamedLimit("l7").Running != 2 {
		t.Errorf("restored %d limits, want %d, and the changed one: %+v", got, maxNamedLimits, old.NamedLimit("l7"))
	}
	mustApply(t, s, &DeleteLimit{Name: "l9"}, set(maxNamedLimits, 1))
}
