package fsm

import (
	"bytes"
	"maps"
	"testing"
)

// count counts an end. The reference model counts wherever something ends, the state machine in
// one place for tasks and in one for jobs.
func (w *model) count(what string) {
	if w.level >= 4 {
		w.counted[what]++
	}
}

// countedEnds returns the totals of a state by what ended and how, without zeros.
func countedEnds(s *State) map[string]uint64 {
	counted := make(map[string]uint64)
	for st := Completed; st < numStates; st++ {
		counted["task "+st.String()] = s.EndedTasks(st)
	}
	for st := JobCompleted; st < numJobStates; st++ {
		counted["job "+st.String()] = s.EndedJobs(st)
	}
	maps.DeleteFunc(counted, func(_ string, n uint64) bool { return n == 0 })
	return counted
}

func wantEnds(t *testing.T, what string, s *State, want map[string]uint64) {
	t.Helper()
	if got := countedEnds(s); !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestEndsAreCountedFromTheirLevelOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetLevel{Level: totalsLevel - 1}).do(worker(1))
	w.submit(plan(nil, nil))
	w.do(complete(w.assign(0, 1)))
	wantEnds(t, "below the level", w.s, nil)
	w.do(&SetLevel{Level: totalsLevel})
	w.do(complete(w.assign(1, 1)))
	wantEnds(t, "at the level", w.s, map[string]uint64{"task completed": 1, "job completed": 1})
}

func TestARevivedTaskCountsAgainWhenItEndsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetLevel{Level: totalsLevel}).do(worker(1))
	w.submit(plan(nil))
	w.do(failed(w.assign(0, 1), NextDead))
	want := map[string]uint64{"task dead": 1, "job failed": 1}
	wantEnds(t, "a dead letter", w.s, want)
	w.do(&Revive{Job: 1})
	wantEnds(t, "a revived one", w.s, want)
	w.do(failed(w.assign(0, 1), NextRetry))
	wantEnds(t, "a retry", w.s, want)
	w.do(&Due{Items: []AttemptRef{att(1, 0, 2)}})
	w.do(failed(w.assign(0, 1), NextDead))
	want = map[string]uint64{"task dead": 2, "job failed": 2}
	wantEnds(t, "the second end", w.s, want)
	w.do(&Purge{Job: 1})
	wantEnds(t, "a purge", w.s, want)
	w.do(&Archive{Items: []JobID{1}})
	wantEnds(t, "a forgotten job", w.s, want)
}

func TestEachTaskOfACancelledJobIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetLevel{Level: totalsLevel}).do(worker(1))
	p := plan(nil, []uint32{0})
	p.addArray(arrayPlan{Array: Array{Name: "many", Ranges: []IndexRange{{0, 1, 600}}, Items: 600, Chunk: 1}})
	w.submit(p)
	w.assign(0, 1)
	w.do(&CancelJob{Job: 1, Reason: "enough"})
	wantEnds(t, "cancelled", w.s, map[string]uint64{"task cancelled": 602, "job cancelled": 1})
}

func TestTotalsSurviveSnapshotsForksAndRecoveries(t *testing.T) {
	t.Parallel()
	s := New()
	for _, e := range level4Log() {
		mustApply(t, s, e.Ops...)
	}
	want := countedEnds(s)
	if len(want) != 8 {
		t.Fatalf("the log has not all ends: %v", want)
	}
	wantEnds(t, "restored", restored(t, snapshotOf(t, s)), want)
	wantEnds(t, "forked", s.Fork(), want)
	for name, rescue := range map[string]func(m *Machine, r Recovery){
		"recovered": func(m *Machine, r Recovery) { m.Recover(r) },
		"backup":    func(m *Machine, r Recovery) { m.RestoreBackup(Restoration{Recovery: r}) },
	} {
		m := NewMachine()
		for i, e := range level4Log() {
			m.Apply(uint64(i)+1, Encode(nil, e))
		}
		rescue(m, Recovery{ClusterID: "c2", Server: "n1", Instance: "new"})
		reread(t, m).Read(func(s *State, _ uint64) { wantEnds(t, name, s, want) })
	}
}

func TestTasksThatARecoveryGivesUpAreCountedOnce(t *testing.T) {
	t.Parallel()
	m := recoverable(t)
	m.Apply(m.Index()+1, Encode(nil, Entry{Ops: []Op{&SetLevel{Level: totalsLevel}}}))
	for _, name := range []string{"recovered", "recovered again"} {
		m.Recover(Recovery{ClusterID: name, Server: "n1", Instance: name})
		m = reread(t, m)
		m.Read(func(s *State, _ uint64) {
			wantEnds(t, name, s, map[string]uint64{"task lost": 1, "task cancelled": 2, "job failed": 1})
		})
	}
}

func TestATotalThatDiffersIsDetectedWhenItIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(&SetLevel{Level: totalsLevel}).do(worker(1))
	w.submit(plan(nil))
	done := complete(w.assign(0, 1))
	for name, damage := range map[string]func(s *State){
		"tasks": func(s *State) { s.totals.tasks[0] ^= 1 << 40 },
		"jobs":  func(s *State) { s.totals.jobs[0] ^= 1 },
	} {
		good, bad := w.s.Fork(), w.s.Fork()
		damage(bad)
		for _, s := range []*State{good, bad} {
			mustApply(t, s, done)
		}
		if good.Digest() == bad.Digest() {
			t.Errorf("%s: the digests are equal", name)
		}
	}
}

func TestAFrameOfTotalsThatNobodyWritesIsRefused(t *testing.T) {
	t.Parallel()
	s := New()
	for _, e := range level4Log() {
		mustApply(t, s, e.Ops...)
	}
	good := snapshotOf(t, s)
	if _, err := ReadSnapshot(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	s.level.current = totalsLevel - 1
	if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
		t.Error("below the level: got no error")
	}
	twice := func(f *frameWriter, s *State) {
		f.level(s)
		f.cluster(s)
		f.totals(s)
		f.totals(s)
		f.end(s)
	}
	empty := func(f *frameWriter, s *State) {
		f.level(s)
		f.cluster(s)
		new(totals).fields(&f.c)
		f.frame(frameTotals)
		f.end(s)
	}
	s = New()
	s.level.current, s.totals.jobs[0] = totalsLevel, 1
	for name, write := range map[string]func(*frameWriter, *State){"twice": twice, "empty": empty} {
		var b bytes.Buffer
		f := frameWriter{}
		f.begin(&b, snapshotMagic)
		write(&f, s)
		if err := f.finish(); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSnapshot(&b); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
