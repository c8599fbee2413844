package fsm

import (
	"fmt"
	"slices"
	"testing"
)

// manyJobs returns a state with n small cancelled jobs, without those that forget
// selects.
func manyJobs(t *testing.T, n int, forget func(id JobID) bool) *State {
	t.Helper()
	s, p, gone := New(), plan(nil), new(Archive)
	for id := JobID(1); id <= JobID(n); id++ {
		ops := append(p.submit(id, fmt.Sprintf("k%d", id), 1), &CancelJob{Job: id})
		if r := s.Apply(Entry{Ops: ops}, nil); r != Accepted {
			t.Fatal(r)
		}
		if forget(id) {
			gone.Items = append(gone.Items, id)
		}
	}
	if r := s.Apply(Entry{Ops: []Op{gone}}, nil); r != Accepted {
		t.Fatal(r)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

func listed(s *State, below JobID) []JobID {
	var ids []JobID
	for j := range s.Jobs(below) {
		ids = append(ids, j.ID)
	}
	return ids
}

func TestJobsAreListedNewestFirstOverPagesAndGaps(t *testing.T) {
	t.Parallel()
	const n = 3*jobPageSize + 10
	for name, forget := range map[string]func(JobID) bool{
		"none":             func(JobID) bool { return false },
		"all":              func(JobID) bool { return true },
		"the first page":   func(id JobID) bool { return id < jobPageSize },
		"a page between":   func(id JobID) bool { return id/jobPageSize == 1 },
		"the last page":    func(id JobID) bool { return id >= 3*jobPageSize },
		"around an edge":   func(id JobID) bool { return id%jobPageSize < 2 || id%jobPageSize > 253 },
		"all but the edge": func(id JobID) bool { return id%jobPageSize != 0 },
		"two pages":        func(id JobID) bool { return id >= jobPageSize && id < 3*jobPageSize },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := manyJobs(t, n, forget)
			for _, below := range []JobID{0, 1, 2, 255, 256, 257, 511, 512, 513, 767, 768, 769, n, n + 1, n + 2, 1 << 40} {
				var want []JobID
				for id := JobID(n); id > 0; id-- {
					if (below == 0 || id < below) && !forget(id) {
						want = append(want, id)
					}
				}
				if got := listed(s, below); !slices.Equal(got, want) {
					t.Errorf("below %d: got %d jobs %v, want %d", below, len(got), got, len(want))
				}
				if got := listed(restored(t, snapshotOf(t, s)), below); !slices.Equal(got, want) {
					t.Errorf("restored, below %d: got %d jobs, want %d", below, len(got), len(want))
				}
			}
			for range s.Jobs(0) {
				break // stops early
			}
			for id := JobID(1); id <= n; id++ {
				if _, ok := s.Job(id); ok == forget(id) {
					t.Errorf("job %d: got known = %v", id, ok)
				}
			}
		})
	}
}

// The length of the table depends on the current jobs only.
func TestArchivedJobsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	s := manyJobs(t, 5*jobPageSize, func(id JobID) bool { return id != 3 && id != 1000 })
	if len(s.jobs.pages) != 2 || s.JobCount() != 2 {
		t.Errorf("got %d pages with %d jobs, want 2 and 2", len(s.jobs.pages), s.JobCount())
	}
	for range 5 {
		sameState(t, "restored", restored(t, snapshotOf(t, s)), s) // with several keys in a shard: their order must not be that of the map
	}
	if s.Keys() != 5*jobPageSize {
		t.Errorf("got %d keys, want all: they outlive their jobs", s.Keys())
	}
}

func TestUploadsAreListedOldestFirstAndNotShownAsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := diamond()
	for id := JobID(1); id <= 300; id++ {
		w.s.Apply(Entry{Ops: p.submit(id, fmt.Sprintf("k%d", id), 4)[:2]}, nil)
	}
	w.do(&SealUpload{Job: 2, Sum: p.sum()}, &DropUpload{Job: 256}, &DropUpload{Job: 1})
	var want []JobID
	for id := JobID(3); id <= 300; id++ {
		if id != 256 {
			want = append(want, id)
		}
	}
	if got := slices.Collect(w.s.Uploads()); !slices.Equal(got, want) {
		t.Errorf("uploads: got %v", got)
	}
	if got := listed(w.s, 0); !slices.Equal(got, []JobID{2}) {
		t.Errorf("got jobs %v, want only 2", got)
	}
	for range w.s.Uploads() {
		break
	}
	for _, at := range []TaskRef{ref(3, 0), ref(1, 0), ref(2, 4), ref(0, 0)} {
		_, isTask := w.s.Task(at)
		_, isReady := w.s.Ready(at)
		found := isTask || isReady || w.s.Live(HeldAttempt{AttemptRef: AttemptRef{TaskRef: at}}) || w.s.Policy(at) != nil || w.s.Name(at) != "" ||
			w.s.Body(at) != nil || w.s.Dependencies(at) != nil || w.s.Dependents(at) != 0 || w.s.Result(at).Error != ""
		if found {
			t.Errorf("got a view of unknown task %v", at)
		}
	}
}

func TestATaskIsFoundByItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(chain(10)) // in chunks of three
	for i := range uint32(10) {
		if at, ok := w.s.FindTask(id, fmt.Sprintf("t%d", i)); !ok || at != ref(id, i) {
			t.Errorf("t%d: got %v %v", i, at, ok)
		}
	}
	for _, name := range []string{"", "t", "t10"} {
		if at, ok := w.s.FindTask(id, name); ok {
			t.Errorf("%q: got task %v, want none", name, at)
		}
	}
	if _, ok := w.s.FindTask(id+1, "t0"); ok {
		t.Error("got a task of an unknown job")
	}
	if got := w.s.Dependents(ref(id, 0)); got != 1 {
		t.Errorf("got %d dependents, want 1", got)
	}
	if w.s.Policy(ref(id, 0)).GetTimeoutMs() != 1000 {
		t.Error("got a policy other than the submitted one")
	}
}

func TestExpiredKeysAreOfSealedJobsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id := JobID(1); id <= 20; id++ {
		p := plan(nil)
		ops := p.submit(id, fmt.Sprintf("k%02d", id), 1)
		ops[0].(*BeginUpload).KeyExpires = int64(id)
		if id%2 == 0 {
			ops = ops[:2] // never sealed
		}
		w.do(ops...)
	}
	var got []string
	for part := range KeyShards {
		got = append(got, w.s.ExpiredKeys(part, 10, 100)...)
	}
	slices.Sort(got)
	if want := []string{"k01", "k03", "k05", "k07", "k09"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if r := w.try(&ForgetKeys{Items: []string{"k02", "k03"}}); r != WrongState {
		t.Errorf("forgetting the key of an upload: got %v", r)
	}
	if _, _, _, known := w.s.Key("k03"); known {
		t.Error("k03 is known, want forgotten")
	}
}

func TestValuesHaveNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Dead.String(): "dead", TaskState(0).String(): "state(0)", numStates.String(): "state(10)",
		JobRunning.String(): "running", numJobStates.String(): "state(7)", JobState(0).String(): "state(0)",
		WorkerUp.String(): "up", WorkerDown.String(): "down", WorkerState(9).String(): "state(9)",
		StaleAttempt.String(): "stale attempt", Reason(len(reasons)).String(): fmt.Sprintf("reason(%d)", Reason(len(reasons))), att(3, 4, 5).String(): "3/4@5",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestEveryReasonHasAText(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for r, row := range reasons {
		if row.text == "" || seen[row.text] {
			t.Errorf("reason %d: text %q is empty or not unique", r, row.text)
		}
		seen[row.text] = true
	}
}
