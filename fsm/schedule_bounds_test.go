package fsm

import (
	"fmt"
	"testing"
)

// setNamed returns the operations that set a schedule of a name. Its template has a size in bytes,
// or is as small as possible if that is 0.
func setNamed(s *State, name string, size int, change func(*SetSchedule)) []Op {
	p := plan(nil)
	p.name = name
	if size > 0 {
		p.tasks[0].body = make([]byte, size-256)
		p.tasks[0].body = make([]byte, size-256+size-len(p.header())-p.chunk(0, 1).Size())
	}
	return setOf(s.NextJob(), p, func(o *SetSchedule) {
		o.Digest = [16]byte(fmt.Appendf(nil, "%-8s%8d", name, size))
		if change != nil {
			change(o)
		}
	})
}

func TestAClusterHasAtMostTenThousandSchedules(t *testing.T) {
	t.Parallel()
	s := New()
	s.level.current = 3
	set := func(name string, change func(*SetSchedule)) Reason {
		return s.Fork().Apply(Entry{NowMS: 1000, Ops: setNamed(s, name, 0, change)}, nil)
	}
	apply := func(ops ...Op) {
		t.Helper()
		if r := s.Apply(Entry{NowMS: 1000, Ops: ops}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	for i := range 10_000 {
		apply(setNamed(s, fmt.Sprintf("s%d", i), 0, nil)...)
	}
	if r := set("more", nil); r != LimitExceeded {
		t.Errorf("schedule 10,001: got %v, want %v", r, LimitExceeded)
	}
	if r := set("s7", func(o *SetSchedule) { o.Overlap = OverlapWait }); r != Accepted {
		t.Errorf("a replacement: got %v", r)
	}
	apply(&DeleteSchedule{ID: 8})
	if r := set("more", nil); r != Accepted {
		t.Errorf("in place of a deleted one: got %v", r)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestTheJobsOfAllSchedulesHave64MiB(t *testing.T) {
	t.Parallel()
	s := New()
	s.level.current = 3
	const size = 8 << 20
	set := func(name string, size int, rule Overlap) Reason {
		ops := setNamed(s, name, size, func(o *SetSchedule) { o.Overlap = rule })
		trial := s.Fork()
		r := trial.Apply(Entry{NowMS: 1000, Ops: ops}, nil)
		if r == Accepted {
			s = trial
		}
		return r
	}
	want := func(want Reason, name string, size int, rule Overlap) {
		t.Helper()
		if got := set(name, size, rule); got != want {
			t.Errorf("schedule %s of %d bytes: got %v, want %v", name, size, got, want)
		}
	}
	for i := range 8 {
		want(Accepted, fmt.Sprintf("s%d", i), size, OverlapSkip)
	}
	if got := s.schedules.bytes; got != 64<<20 {
		t.Fatalf("the jobs have %d bytes, want exactly 64 MiB", got)
	}
	want(LimitExceeded, "more", 0, OverlapSkip)
	want(LimitExceeded, "s3", size+1, OverlapSkip)
	want(Accepted, "s3", size, OverlapWait) // what it replaces does not count
	want(Accepted, "s3", size-1000, OverlapWait)
	want(LimitExceeded, "more", 1001, OverlapSkip)
	want(Accepted, "more", 1000, OverlapSkip)
	if r := s.Apply(Entry{NowMS: 1000, Ops: []Op{&DeleteSchedule{ID: 1}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	want(Accepted, "s8", size, OverlapSkip)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
