package fsm

import (
	"strings"
	"testing"
)

// Check finds every kind of damage.
func TestCheckFindsBrokenInvariants(t *testing.T) {
	t.Parallel()
	build := func() (*State, *job) {
		s := flipWorld(t)
		p := diamond()
		for _, op := range p.submit(2, "upload", 4)[:2] {
			s.Apply(Entry{Ops: []Op{op}}, nil)
		}
		return s, s.jobs.get(1)
	}
	for want, damage := range map[string]func(s *State, j *job){
		"follows page":                  func(s *State, _ *job) { s.jobs.pages = append(s.jobs.pages, s.jobs.pages[0]) },
		"job 9 is at position":          func(_ *State, j *job) { j.id = 9 },
		"job 1 is at position":          func(s *State, _ *job) { s.nextJob = 1 },
		"page 0 of the job table has":   func(s *State, _ *job) { s.jobs.pages[0].live++ },
		"job table has":                 func(s *State, _ *job) { s.jobs.live++ },
		"by state":                      func(_ *State, j *job) { j.counts[Dead]++ },
		"open tasks":                    func(_ *State, j *job) { j.state = JobCompleted },
		"stopping with tasks":           func(_ *State, j *job) { j.stopping = true },
		"pending with assigned":         func(_ *State, j *job) { j.state = JobPending },
		"waits for 1 tasks, counted 2":  func(_ *State, j *job) { j.records.at(4).pending = 2 },
		"0 open, 1 failed":              func(_ *State, j *job) { swap(j, 1, Assigned, Failed) },
		"blocked without open":          func(_ *State, j *job) { swap(j, 0, Pending, Blocked) },
		"is pending with 1 open depend": func(_ *State, j *job) { swap(j, 4, Blocked, Pending) },
		"assigned to unknown worker 77": func(_ *State, j *job) { j.records.at(1).worker = 77 },
		"assigned to unknown worker 1":  func(_ *State, j *job) { j.records.at(1).attempt = 0 },
		"unknown policy":                func(_ *State, j *job) { j.header.Policies = j.header.GetPolicies()[:1] },
		"0: unknown policy":             func(s *State, j *job) { j.setUpdate(s.own, 0, taskUpdate{policy: 40}) },
		"scheduled without a time":      func(_ *State, j *job) { swap(j, 0, Pending, Scheduled) },
		"truncated":                     func(_ *State, j *job) { j.records.at(1).note = 99 },
		"unknown note kind":             func(s *State, j *job) { j.records.at(1).note = j.notes.add(s.own, 9, []byte("x")) },
		"is pending in an upload":       func(s *State, _ *job) { swap(s.jobs.get(2), 0, Blocked, Pending) },
		"upload without its key":        func(s *State, _ *job) { s.keys.delete(s.own, "upload") },
		"of a missing upload":           func(s *State, _ *job) { s.jobs.remove(s.own, 2) },
		"is out of range":               func(s *State, _ *job) { s.keys.set(s.own, "k", key{job: 0}) },
		"does not match":                func(s *State, _ *job) { s.keys.set(s.own, "k", key{job: 1}) },
		"keys, counted":                 func(s *State, _ *job) { s.keys.n++ },
		"worker 2 follows worker":       func(s *State, _ *job) { s.workers.next = 2 },
		"is not found by its name":      func(s *State, _ *job) { s.workers.list[0].Name = "x" },
		"has invalid state":             func(s *State, _ *job) { s.workers.list[0].State = 0 },
		"live attempts of 1":            func(s *State, _ *job) { s.workers.held = s.workers.held[:1] },
		"holds 1 attempts, counted 0":   func(s *State, _ *job) { s.workers.held[0]-- },
		"names":                         func(s *State, _ *job) { s.workers.names.set(s.own, "x", 1) },
	} {
		s, j := build()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		damage(s, j)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// swap changes the state of a task without the rules, and keeps the counts
// correct.
func swap(j *job, i uint32, from, to TaskState) {
	j.records.at(i).state = to
	j.counts[from]--
	j.counts[to]++
}

func TestClusterFactsCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetClusterID{ID: "c1"}, &Replica{ServerID: "n2", Instance: "b"}, &Replica{ServerID: "n1", Instance: "a"}, &StartTerm{Term: 4, ServerID: "n1"})
	w.do(&Replica{ServerID: "n1", Instance: "a"}) // a second copy changes nothing
	w.do(&Replica{ServerID: "n2-1", Instance: "c", Replaces: "n2", LowWaterMark: 7}, &Replica{ServerID: "n2-1", Instance: "c", LowWaterMark: 9}, &Replica{ServerID: "n2-1", Instance: "c", LowWaterMark: 8})
	refused(t, w, "as the replacement of another", WrongState, &Replica{ServerID: "n2-1", Instance: "c", Replaces: "n1"})
	refused(t, w, "as its own replacement", Malformed, &Replica{ServerID: "n9", Instance: "d", Replaces: "n9"})
	refused(t, w, "as its own replacement later", Malformed, &Replica{ServerID: "n1", Instance: "a", Replaces: "n1"})
	refused(t, w, "another instance", WrongState, &Replica{ServerID: "n1", Instance: "b"})
	refused(t, w, "another name", WrongState, &SetClusterID{ID: "c2"})
	refused(t, w, "the same term", OutOfOrder, &StartTerm{Term: 4, ServerID: "n2"})
	for _, s := range []*State{w.s, restored(t, snapshotOf(t, w.s))} {
		want := Replica{ServerID: "n2-1", Instance: "c", Replaces: "n2", LowWaterMark: 9}
		if got, known := s.Replica("n2-1"); got != want || !known {
			t.Errorf("got record of n2-1 %+v", got)
		}
		if got, known := s.ReplicaByInstance("c"); got != want || !known {
			t.Errorf("got replica of data directory c %+v", got)
		}
		if got, known := s.Instance("n1"); got != "a" || !known {
			t.Errorf("instance of n1: got %q, %v", got, known)
		}
		if _, known := s.Instance("n3"); known {
			t.Error("n3: got a record, want none")
		}
		if term, leader := s.Term(); s.ClusterID() != "c1" || s.Epoch() != 1 || term != 4 || leader != "n1" {
			t.Errorf("got cluster %q, epoch %d, term %d of %q", s.ClusterID(), s.Epoch(), term, leader)
		}
	}
	fx := &Effects{Ready: make([]TaskRun, 3), EndedJobs: make([]JobID, 1), Sealed: make([]JobID, 1), EndedAttempts: make([]HeldAttempt, 1), Scheduled: make([]DueTask, 1)}
	if fx.Reset(); len(fx.Ready)+len(fx.EndedJobs)+len(fx.Sealed)+len(fx.EndedAttempts)+len(fx.Scheduled) != 0 {
		t.Errorf("after reset: got %+v", fx)
	}
	if d := NewEntryBuilder(w.s, 77, nil); d.NowMS() != 77 {
		t.Errorf("stamp %d", d.NowMS())
	}
}
