package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// drawn returns a chooser of a property's own draws, so that failures shrink.
func drawn(t *rapid.T) chooser {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

// The main property: for any sequence of operations, the state machine and its simple
// reference model agree after every entry, and no promise is broken.
func TestTheStateAgreesWithItsReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		choose := drawn(t)
		g, s, w, p, waited := newGenerator(choose), New(), newModel(), make(promises), make(waitedTasks)
		start(s, w)
		for n := range 20 + choose(100) {
			now := int64(n*10 + choose(7))
			ops := g.ops(s)
			e := mustDecode(t, Encode(nil, Entry{NowMS: now, Ops: ops}))
			fx := new(Effects)
			got, want := s.Apply(e, fx).String(), w.entry(now, ops)
			if got != want {
				t.Fatalf("entry %d %s: %s, reference model says %s", s.Entries(), describe(ops), got, want)
			}
			if err := s.Check(); err != nil {
				t.Fatalf("entry %d %s: %v", s.Entries(), describe(ops), err)
			}
			if diff := compare(s, w, fx); diff != "" {
				t.Fatalf("entry %d %s: state and reference model differ:\n%s", s.Entries(), describe(ops), diff)
			}
			waited.check(t, s, p, fx)
			p.check(t, s, ops)
		}
	})
}

// start registers two workers on both sides.
func start(s *State, w *model) {
	ops := []Op{worker(1), worker(2)}
	s.Apply(Entry{Ops: ops}, nil)
	w.entry(0, ops)
}

func mustDecode(t interface{ Fatal(...any) }, data []byte) Entry {
	e, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func describe(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "%T%.200v ", op, fmt.Sprint(op))
	}
	return b.String()
}

// compare returns the differences between a state and its reference model.
func compare(s *State, w *model, fx *Effects) string {
	if diff := cmp.Diff(modelFacts(w), stateFacts(s)); diff != "" {
		return diff
	}
	if diff := w.access.compare(s, fx); diff != "" {
		return diff
	}
	if diff := w.schedules.compare(s); diff != "" {
		return diff
	}
	if diff := w.limits.compare(s); diff != "" {
		return diff
	}
	if diff := w.queues.compare(s); diff != "" {
		return diff
	}
	for _, j := range w.jobs {
		if diff := compareJob(s, j); diff != "" {
			return fmt.Sprintf("job %d: %s", j.id, diff)
		}
	}
	if diff := compareCounts(s, w); diff != "" {
		return diff
	}
	if diff := cmp.Diff(w.counted, countedEnds(s)); diff != "" {
		return diff
	}
	return compareEffects(fx, w)
}

func compareCounts(s *State, w *model) string {
	jobs, tasks := s.CountByState()
	got, want := make(map[string]uint64), make(map[string]uint64)
	for state, n := range jobs {
		got["job "+state.String()] = n
		want["job "+state.String()] = 0
	}
	for state, n := range tasks {
		got["task "+state.String()] = n
		want["task "+state.String()] = 0
	}
	waiting := s.CountWaiting(w.now)
	got["waiting for other jobs"], got["waiting for its start time"], got["waiting for its key"] = waiting.OtherJobs, waiting.StartTime, waiting.Concurrency
	want["waiting for other jobs"], want["waiting for its start time"], want["waiting for its key"] = 0, 0, 0
	for _, j := range w.jobs {
		if j.state == "uploading" {
			continue
		}
		switch want["job "+j.state]++; {
		case j.outcome == "" && j.waitsForJobs():
			want["waiting for other jobs"]++
		case !j.behindGate():
		case w.now < j.starts():
			want["waiting for its start time"]++
		default:
			want["waiting for its key"]++
		}
		for _, t := range j.tasks {
			want["task "+t.state]++
		}
	}
	return cmp.Diff(want, got)
}

// facts are the values that are compared directly.
type facts struct {
	ClusterID, Leader string
	Term              uint64
	Level             Level
	Held              bool
	NextJob           JobID
	NextWorker        WorkerID
	Workers           []Worker
	Jobs, Uploads     []uint64
	Keys              []string
	Notices           []Notification
	Letters           map[string]int
	Results           []string
}

func modelFacts(w *model) facts {
	f := facts{ClusterID: w.clusterID, Leader: w.leader, Term: w.term, Level: w.level, Held: w.held, NextJob: JobID(w.nextJob), NextWorker: WorkerID(w.nextWorker)}
	for id := range w.nextWorker {
		if x := w.workers[id]; x != nil {
			f.Workers = append(f.Workers, *x)
		}
	}
	for id := range w.nextJob {
		if j := w.jobs[id]; j != nil && j.state == "uploading" {
			f.Uploads = append(f.Uploads, id)
		} else if j != nil {
			f.Jobs = append(f.Jobs, id)
		}
	}
	slices.Reverse(f.Jobs) // newest first
	for name, k := range w.keys {
		f.Keys = append(f.Keys, fmt.Sprintf("%s=%d %v %x %d %d", name, k.job, k.sealed, k.digest, k.version, k.purged))
	}
	slices.Sort(f.Keys)
	f.Notices, f.Letters = w.notices, w.deadLetters()
	for key, x := range w.results {
		f.Results = append(f.Results, fmt.Sprintf("%q of %s: %d bytes in %q until %d", key, x.from, len(x.result), x.output, x.expires))
	}
	slices.Sort(f.Results)
	return f
}

func stateFacts(s *State) facts {
	f := facts{ClusterID: s.ClusterID(), Level: s.Level(), Held: s.LevelHeld(), NextJob: s.NextJob(), NextWorker: s.NextWorker()}
	f.Term, f.Leader = s.Term()
	f.Notices, f.Letters = s.Notifications(0), s.DeadLettersByType()
	for x := range s.Workers() {
		f.Workers = append(f.Workers, *x)
	}
	for j := range s.Jobs(0) {
		f.Jobs = append(f.Jobs, uint64(j.ID))
	}
	for id := range s.Uploads() {
		f.Uploads = append(f.Uploads, uint64(id))
	}
	for shard := range shardCount {
		for name := range s.keys.scan(shard) {
			id, digest, sealed, _ := s.Key(name)
			c, _ := s.ChangeOf(name)
			f.Keys = append(f.Keys, fmt.Sprintf("%s=%d %v %x %d %d", name, id, sealed, digest, c.Version, c.Purged))
		}
		for key, x := range s.results.byKey.scan(shard) {
			inline := 0
			if value := x.value; len(value) > 0 {
				_, n := binary.Varint(value)
				inline = len(value) - n - 1 - int(value[n])
			}
			f.Results = append(f.Results, fmt.Sprintf("%q of %d/%s: %d bytes in %q until %d", key, x.job, x.task, inline, x.output, x.expires))
		}
	}
	slices.Sort(f.Keys)
	slices.Sort(f.Results)
	return f
}

func compareJob(s *State, want *modelJob) string {
	j, ok := s.Job(JobID(want.id))
	if want.state == "uploading" {
		if ok {
			return "got a view of an upload"
		}
		return ""
	}
	if !ok {
		return "missing"
	}
	counts, running := map[string]uint32{}, uint32(0)
	for _, t := range want.tasks {
		counts[t.state]++
		if t.runs() {
			running++
		}
	}
	if got := j.Header.GetQueue(); got != want.queue {
		return fmt.Sprintf("queue %q, want %q", got, want.queue)
	}
	if j.Running != running {
		return fmt.Sprintf("%d tasks run, want %d", j.Running, running)
	}
	for state := Blocked; state < numStates; state++ {
		if j.Counts[state] != counts[state.String()] {
			return fmt.Sprintf("counts %d %v, want %d", j.Counts[state], state, counts[state.String()])
		}
	}
	type shape struct {
		Key, State, Err           string
		Stopping                  bool
		Submitted, Started, Ended int64
		Revived                   int64
		Retries, Requeues         uint64
		Total                     int
		Outcome                   string
		Version                   uint32
		Priority                  dtaskv1.Priority
		Gated                     bool
	}
	got := shape{j.Key, j.State.String(), j.Error, j.Stopping, j.SubmittedMS, j.StartedMS, j.EndedMS, j.RevivedMS, j.Retries, j.Requeues, int(j.Total), "", j.Version, j.Priority, j.Gated}
	if j.Outcome != 0 {
		got.Outcome = j.Outcome.String()
	}
	if tolerated := want.failures(); tolerated > want.maxFailures && j.Tolerated != 0 || tolerated <= want.maxFailures && int(j.Tolerated) != tolerated {
		return fmt.Sprintf("tolerates %d failures of %d, has %d", j.Tolerated, want.maxFailures, tolerated)
	}
	if diff := cmp.Diff(shape{
		want.key, want.state, jobError(s, want), want.stopping, want.submitted, want.started, want.ended,
		want.revived, want.retries, want.requeues, want.total, want.outcome, want.version, want.priority, want.behindGate(),
	}, got); diff != "" {
		return diff
	}
	for i, t := range want.tasks {
		if t.accepted > 1 {
			return fmt.Sprintf("task %d: %d completions accepted", i, t.accepted)
		}
		if diff := compareTask(s, ref(j.ID, uint32(i)), want, t); diff != "" {
			return fmt.Sprintf("task %d: %s", i, diff)
		}
	}
	if diff := compareWalks(s, want); diff != "" {
		return diff
	}
	return compareUniformRuns(s, j)
}

// compareWalks checks the walks over all tasks of a job, or some of them.
func compareWalks(s *State, want *modelJob) string {
	id, n := JobID(want.id), uint32(len(want.tasks))
	for _, part := range [][2]uint32{{0, n}, {n / 3, n - n/3}, {n / 2, n + 10}} {
		next, counts, running := part[0], [numStates]uint32{}, uint32(0)
		for i, got := range s.AttemptStates(id, part[0], part[1]) {
			if i != next || got.State.String() != want.tasks[i].state || got.Runs != want.tasks[i].runs() {
				return fmt.Sprintf("walk %v: got task %d %v, want %d %s", part, i, got, next, want.tasks[next].state)
			}
			if got.Runs {
				running++
			}
			counts[got.State]++
			next++
		}
		if got, run := s.CountStates(id, part[0], part[1]); next != max(part[0], min(part[1], n)) || got != counts || run != running {
			return fmt.Sprintf("walk %v: ended before task %d, counted %v, %d of them running, want %v, %d", part, next, got, run, counts, running)
		}
	}
	level, counts := make([]int, n), []uint32(nil)
	for i := range n {
		for _, dep := range s.Dependencies(ref(id, i)) {
			level[i] = max(level[i], level[dep]+1)
		}
		if level[i] >= len(counts) {
			counts = append(counts, make([]uint32, level[i]+1-len(counts))...)
		}
		counts[level[i]]++
	}
	if got := s.LevelCounts(id); !slices.Equal(got, counts) {
		return fmt.Sprintf("got levels %v, want %v", got, counts)
	}
	return ""
}

// compareUniformRuns checks that the runs of a job's tasks cover all of them, and
// agree with each task.
func compareUniformRuns(s *State, j Job) string {
	next := uint32(0)
	for a := range s.UniformRuns(TaskRun{ref(j.ID, 0), j.Total + 1}) {
		if a.Job != j.ID || a.Index != next || a.N == 0 {
			return fmt.Sprintf("run %+v, want one that starts with task %d", a, next)
		}
		array, _ := s.ArrayTask(a.TaskRef)
		for i := range a.N {
			at := ref(j.ID, a.Index+i)
			t, _ := s.Task(at)
			want := UniformRun{TaskRun: a.TaskRun, State: t.State}
			if t.State == Pending {
				want.Policy, want.Fresh, want.Cleanup = t.Policy, t.Attempt == 0, t.Cleanup
			}
			if diff := cmp.Diff(want, a); diff != "" {
				return fmt.Sprintf("task %d of a run: %s", i, diff)
			}
			if of, _ := s.ArrayTask(at); t.State == Pending && (of.First != array.First || of.Count != array.Count) {
				return fmt.Sprintf("run %+v: task %d is part of another array", a, i)
			}
		}
		next += a.N
	}
	if next != j.Total {
		return fmt.Sprintf("got runs of %d tasks, want %d", next, j.Total)
	}
	return ""
}

func compareTask(s *State, at TaskRef, j *modelJob, want *modelTask) string {
	t, _ := s.Task(at)
	r := s.Result(at)
	wantTask := Task{
		Index: at.Index, State: t.State, Attempt: want.attempt, Worker: WorkerID(want.worker), Pending: j.waits(want),
		Failures: want.failures, Losses: want.losses, StartedMS: want.started, EndedMS: want.ended, StartLogged: want.begun, Alternative: want.alternative, Policy: t.Policy, NotBefore: want.notBefore,
		Cleanup: want.final,
	}
	if want.state == "scheduled" {
		wantTask.DueMS = want.due
	}
	if t.State.String() != want.state {
		return fmt.Sprintf("is %v, want %s", t.State, want.state)
	}
	if diff := cmp.Diff(wantTask, t); diff != "" {
		return diff
	}
	if string(r.Data) != want.result || string(r.OutputSHA256) != want.outSHA || r.OutputSize != want.outSize {
		return fmt.Sprintf("result %+v, want %+v", r, want)
	}
	if from := fmt.Sprintf("%d/%s", r.ReusedJob, r.ReusedTask); from != want.reused && r.ReusedJob|JobID(len(want.reused)) != 0 {
		return fmt.Sprintf("reused from %s, want %s", from, want.reused)
	}
	if !sameError(r.Error, j, want) {
		return fmt.Sprintf("error %q, want %q", r.Error, want.err)
	}
	if diff := cmp.Diff(want.past, s.History(at)); diff != "" {
		return "history: " + diff
	}
	saved, ok := s.Checkpoint(at)
	if ok != (want.saved != nil) || ok && cmp.Diff(*want.saved, saved, cmpopts.EquateEmpty()) != "" {
		return fmt.Sprintf("checkpoint %+v, want %+v", saved, want.saved)
	}
	cause := causeOther
	if want.byUser {
		cause = causeUser
	} else if want.skipped {
		cause = causeSkipped
	}
	if got := s.jobs.get(at.Job).records.at(at.Index).cause; got != cause {
		return fmt.Sprintf("cancelled for cause %v, want %v", got, cause)
	}
	if diff := want.samePolicy(j.policies[want.policy], s.Policy(at)); diff != "" {
		return diff
	}
	if s.Name(at) != want.name || string(s.Body(at)) != want.body || !slices.Equal(allDependencies(s, at), want.deps) {
		return "the stored task differs from the submitted one"
	}
	if got := s.Conditions(at); !slices.Equal(got, significant(want.when)) {
		return fmt.Sprintf("conditions %v, want %v", got, want.when)
	}
	return ""
}

// allDependencies returns the dependencies of a task, with all tasks of an array.
func allDependencies(s *State, at TaskRef) []uint32 {
	var all []uint32
	for _, d := range s.Dependencies(at) {
		for n := range s.Span(ref(at.Job, d)) {
			all = append(all, d+n)
		}
	}
	return all
}

// sameError compares errors. If several dependencies are the cause, it may name any
// of them.
func sameError(got string, j *modelJob, want *modelTask) bool {
	if want.err != "dependency" {
		return got == want.err
	}
	return j.sameCause(got, want)
}

// jobError returns the error that a job must have. It may be about the tasks that
// were cancelled because of others.
func jobError(s *State, j *modelJob) string {
	if len(j.errOf) == 0 {
		return j.err
	}
	i := j.errOf[0]
	name, why := j.tasks[i].name, s.Result(ref(JobID(j.id), uint32(i))).Error
	if n := len(j.errOf); n > 1 {
		return fmt.Sprintf("%d tasks cancelled, the first: task %s: %s", n, name, why)
	}
	return fmt.Sprintf("task %s cancelled: %s", name, why)
}

func compareEffects(fx *Effects, w *model) string {
	var ready, ended, scheduled, endedJobs, revived, sealed, dead, moved, movedJobs []string
	for _, r := range fx.Ready {
		for n := range r.N {
			ready = append(ready, fmt.Sprintf("%d/%d", r.Job, r.Index+n))
		}
	}
	for _, h := range fx.EndedAttempts {
		ended = append(ended, fmt.Sprintf("%v by %d", h.AttemptRef, h.Worker))
	}
	for _, d := range fx.Scheduled {
		scheduled = append(scheduled, fmt.Sprintf("%v due %d", d.AttemptRef, d.DueMS))
	}
	for _, id := range fx.EndedJobs {
		endedJobs = append(endedJobs, fmt.Sprint(id))
	}
	for _, id := range fx.Revived {
		revived = append(revived, fmt.Sprint(id))
	}
	for _, id := range fx.Sealed {
		sealed = append(sealed, fmt.Sprint(id))
	}
	for _, t := range fx.Dead {
		dead = append(dead, fmt.Sprintf("%d/%d", t.Job, t.Index))
	}
	if fx.Notifications != w.noticed || fx.NotificationsDropped != w.noticesLost {
		return fmt.Sprintf("%d notices, %d lost; want %d, %d", fx.Notifications, fx.NotificationsDropped, w.noticed, w.noticesLost)
	}
	for _, r := range fx.Reordered {
		for n := range r.N {
			moved = append(moved, fmt.Sprintf("%d/%d", r.Job, r.Index+n))
		}
	}
	for _, id := range fx.ReorderedJobs {
		moved = append(moved, fmt.Sprintf("all of %d", id))
	}
	for _, id := range fx.MovedJobs {
		movedJobs = append(movedJobs, fmt.Sprint(id))
	}
	slices.Sort(moved)
	slices.Sort(w.moved)
	slices.Sort(ready) // tasks become ready in any order
	slices.Sort(w.ready)
	got := [][]string{dead, moved, movedJobs, ready, ended, scheduled, endedJobs, revived, sealed}
	want := [][]string{w.dead, w.moved, w.movedJobs, w.ready, w.ends, w.sched, w.endedJobs, w.revivedJobs, w.seal}
	return cmp.Diff(want, got)
}

// promises has the previous view of each task.
type promises map[TaskRef]Task

// check checks what must hold in every state, without a reference model.
func (p promises) check(t *rapid.T, s *State, ops []Op) {
	revived, purged := map[JobID]bool{}, map[JobID]bool{}
	for _, op := range ops {
		switch op := op.(type) {
		case *Revive:
			revived[op.Job] = true
		case *Purge:
			purged[op.Job] = true
		}
	}
	for j := range s.Jobs(0) {
		open := 0
		for i := range j.Total {
			at := ref(j.ID, i)
			now, _ := s.Task(at)
			before, seen := p[at]
			was := before
			was.Pending = now.Pending // its dependencies may be revived without it
			switch {
			case seen && now.Attempt < before.Attempt:
				t.Fatalf("task %v: attempt decreased from %d to %d", at, before.Attempt, now.Attempt)
			case seen && before.State == Completed && now != was && (!now.Cleanup || !revived[j.ID]):
				t.Fatalf("task %v: completed, but changed from %+v to %+v", at, before, now)
			case seen && before.State.Terminal() && now != was && !revived[j.ID] && (!purged[j.ID] || before.State != Dead || now.State != Failed):
				t.Fatalf("task %v: ended, but changed from %+v to %+v", at, before, now)
			case seen && before.State.Terminal() && !now.State.Terminal() && len(ops) == 1:
				want := before
				want.State, want.EndedMS, want.Failures, want.Losses, want.StartLogged = Pending, 0, 0, 0, false
				want.Pending = now.Pending // its dependencies may be revived too
				switch {
				case now.Pending > 0 || now.Cleanup && j.Outcome == 0 || !now.Cleanup && j.Gated:
					want.State = Blocked
				case now.NotBefore > 0 && now.Attempt == 0:
					want.State, want.DueMS = Scheduled, now.NotBefore
				}
				if now != want {
					t.Fatalf("task %v: was %+v, revived as %+v", at, before, now)
				}
			}
			if n := len(s.History(at)); n > maxHistory {
				t.Fatalf("task %v: got %d attempts in its history", at, n)
			}
			if (now.State == Assigned || now.State == Completed) && s.Conditions(at) == nil {
				for _, d := range allDependencies(s, at) {
					if dep, _ := s.Task(ref(j.ID, d)); dep.State != Completed {
						t.Fatalf("task %v is %v, but its dependency %d is %v", at, now.State, d, dep.State)
					}
				}
				if now.Cleanup && j.Outcome == 0 {
					t.Fatalf("cleanup task %v is %v with open ordinary tasks", at, now.State)
				}
			}
			if !now.State.Terminal() {
				open++
			}
			p[at] = now
		}
		if j.State.Terminal() != (open == 0) {
			t.Fatalf("job %d is %v with %d open tasks", j.ID, j.State, open)
		}
	}
}
