package fsm

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// flips damage one field of a task's record.
var flips = map[string]func(r *record){
	"started":     func(r *record) { r.started ^= 1 },
	"ended":       func(r *record) { r.ended ^= 1 },
	"attempt":     func(r *record) { r.attempt ^= 1 << 9 },
	"worker":      func(r *record) { r.worker ^= 2 },
	"failures":    func(r *record) { r.failures ^= 1 },
	"note":        func(r *record) { r.note ^= 1 },
	"begun":       func(r *record) { r.marks ^= markStartLogged },
	"alternative": func(r *record) { r.marks ^= marksOf(1) },
	"cause":       func(r *record) { r.cause++ },
	"losses":      func(r *record) { r.losses ^= 1 },
}

type touch struct {
	task uint32
	op   Op
}

// touches are operations on the job of flipWorld, with the task that each writes
// to.
var touches = map[string]touch{
	"assign":       {0, &Assign{Items: []AssignItem{AssignItem(hold(1, 0, 1, 1))}}},
	"begin":        {1, &RecordStart{Items: []HeldAttempt{hold(1, 1, 1, 1)}}},
	"complete":     {1, complete(hold(1, 1, 1, 1))},
	"retry":        {1, failed(hold(1, 1, 1, 1), NextRetry)},
	"dead":         {1, failed(hold(1, 1, 1, 1), NextDead)},
	"requeue":      {1, &Requeue{Items: []HeldAttempt{hold(1, 1, 1, 1)}}},
	"lost":         {1, &RequeueLost{Items: []HeldAttempt{hold(1, 1, 1, 1)}}},
	"due":          {2, &Due{Items: []AttemptRef{att(1, 2, 1)}}},
	"cancel task":  {1, &CancelTask{Task: ref(1, 1)}},
	"fail task":    {0, &FailTask{Task: ref(1, 0), Error: "late"}},
	"cancel job":   {3, &CancelJob{Job: 1}},
	"release":      {3, complete(hold(1, 1, 1, 1))},
	"release last": {4, complete(hold(1, 1, 1, 1))},
	"dependents":   {3, failed(hold(1, 1, 1, 1), NextFailed)},
	"update":       {0, &Update{Job: 1, Task: 0, Set: SetNotBefore, NotBeforeMS: 7}},
	"stop":         {0, failed(hold(1, 1, 1, 1), NextFailed)},
}

// revivals are the same for the job of deadLettersWorld.
var revivals = map[string]touch{
	"revive":            {5, &Revive{Job: 1}},
	"revive dependents": {6, &Revive{Job: 1}},
	"revive one":        {5, &Revive{Job: 1, Tasks: []uint32{5}}},
	"purge":             {5, &Purge{Job: 1}},
}

// deadLettersWorld has the tasks of flipWorld in a job that continues after
// failures, and a dead one (5) with a dependent (6).
func deadLettersWorld(t *testing.T) *State {
	t.Helper()
	return worldOfFlips(t, true)
}

// flipWorld has tasks that are pending (0), assigned (1), scheduled (2), and
// blocked by two tasks (3) and by one (4).
func flipWorld(t *testing.T) *State {
	t.Helper()
	return worldOfFlips(t, false)
}

func worldOfFlips(t *testing.T, letters bool) *State {
	t.Helper()
	p := plan(nil, nil, nil, []uint32{0, 1}, []uint32{1}, nil, []uint32{5})
	p.tasks[1].policy = 1
	if letters {
		p.onFailure = continueOnFailure
	}
	w := newWorld(t).do(worker(1), worker(2))
	w.submit(p)
	w.assign(1, 1)
	w.do(failed(w.assign(2, 2), NextRetry))
	if letters {
		w.do(failed(w.assign(5, 2), NextDead))
	}
	return w.s
}

// The digest of a replica whose state differs by a bit differs from the first
// write to it on.
func TestADamagedRecordIsDetectedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	detects(t, flipWorld(t), touches)
	detects(t, deadLettersWorld(t), revivals)
}

func detects(t *testing.T, base *State, touches map[string]touch) {
	t.Helper()
	for name, touch := range touches {
		good := base.Fork()
		if r := good.Apply(Entry{Ops: []Op{touch.op}}, nil); r != Accepted {
			t.Fatalf("%s: %v", name, r)
		}
		for field, flip := range flips {
			bad := base.Fork()
			flip(bad.jobs.write(bad.own, 1).records.write(bad.own, touch.task))
			bad.Apply(Entry{Ops: []Op{touch.op}}, nil)
			if bad.Digest() == good.Digest() {
				t.Errorf("%s: damage of %s was not detected", name, field)
			}
		}
	}
}

func TestADamagedJobIsDetectedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	base, letters := flipWorld(t), deadLettersWorld(t)
	for field, flip := range map[string]func(j *job){
		"pending":   func(j *job) { j.counts[Pending]++ },
		"cancelled": func(j *job) { j.counts[Cancelled]++ },
		"lost":      func(j *job) { j.counts[Lost]++ },
		"retries":   func(j *job) { j.retries ^= 1 },
		"requeues":  func(j *job) { j.requeues ^= 1 },
		"submitted": func(j *job) { j.submitted ^= 1 },
		"started":   func(j *job) { j.started ^= 1 },
		"revived":   func(j *job) { j.revived ^= 1 },
		"error":     func(j *job) { j.err += "." },
		"stopping":  func(j *job) { j.stopping = !j.stopping },
		"outcome":   func(j *job) { j.outcome = JobFailed },
		"ordinary":  func(j *job) { j.ordinary-- },
		"finals":    func(j *job) { j.cleanupCounts[Blocked]++ },
		"version":   func(j *job) { j.version ^= 1 << 4 },
		"priority":  func(j *job) { j.priority ^= 1 },
		"digest":    func(j *job) { j.digest[5] ^= 1 },
		"state":     func(j *job) { j.state = JobPending },
	} {
		for name, op := range map[string]Op{"cancel": &CancelJob{Job: 1}, "fail": &FailJob{Job: 1}, "stop": failed(hold(1, 1, 1, 1), NextDead), "revive": &Revive{Job: 1}, "update": &Update{Job: 1, WholeJob: true, Set: SetPriority, Priority: 1}} {
			good, bad := base.Fork(), base.Fork()
			if name == "revive" {
				good, bad = letters.Fork(), letters.Fork()
			}
			flip(bad.jobs.write(bad.own, 1))
			good.Apply(Entry{Ops: []Op{op}}, nil)
			bad.Apply(Entry{Ops: []Op{op}}, nil)
			if bad.Digest() == good.Digest() {
				t.Errorf("%s: damage of %s was not detected", name, field)
			}
		}
	}
}

func TestAFlippedBitChangesTheDigests(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(worker(1))
	w.submit(diamond())
	a, b := NewMachine(), NewMachine()
	for i, data := range w.log {
		a.Apply(uint64(i+1), data)
		b.Apply(uint64(i+1), data)
	}
	if !b.Flip(ref(1, 0)) || b.Flip(ref(1, 4)) || b.Flip(ref(2, 0)) {
		t.Fatal("flip: got false for an existing task, or true for an unknown one")
	}
	w.assign(0, 1)
	index := uint64(len(w.log))
	a.Apply(index, w.log[index-1])
	b.Apply(index, w.log[index-1])
	ma, mb := a.Marks(0), b.Marks(0)
	for i := range ma {
		if same := ma[i] == mb[i]; same != (i < len(ma)-1) {
			t.Errorf("entry %d: got equal marks: %v", i+1, same)
		}
	}
}

const digestChild = "DTASK_TEST_DIGEST_CHILD"

// A digest must not depend on the process: its memory, the iteration order of
// maps, or the number of threads.
func TestDigestsAreEqualInOtherProcesses(t *testing.T) {
	t.Parallel()
	h := randomHistory(seeded(11), 400, 40)
	sum := fmt.Sprintf("digest %#x of %d bytes %#x", h.digests[len(h.digests)-1], len(h.snapshot), castagnoliOf(h.snapshot))
	if os.Getenv(digestChild) != "" {
		fmt.Println(sum)
		return
	}
	for _, env := range [][]string{{"GOMAXPROCS=1", "GOGC=1"}, {"GOMAXPROCS=7", "GOGC=off"}, {"GOMAXPROCS=2", "GOGC=50", "TZ=Asia/Tokyo"}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDigestsAreEqualInOtherProcesses$")
		cmd.Env = append(append(os.Environ(), digestChild+"=1"), env...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), sum+"\n") {
			t.Errorf("%v: %v: got %s, want %s", env, err, out, sum)
		}
	}
}

func castagnoliOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
