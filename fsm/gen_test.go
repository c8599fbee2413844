package fsm

import (
	"fmt"
	"math/rand/v2"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// generator makes random operations, most of them legal: it reads the state to
// find valid targets.
type generator struct {
	choose chooser
	plans  map[JobID]*jobPlan // of its jobs
	most   int                // tasks in a job
	alone  bool               // no job needs another one
}

func newGenerator(c chooser) *generator {
	return &generator{choose: c, plans: make(map[JobID]*jobPlan), most: 8}
}

// ops returns the operations of one entry.
func (g *generator) ops(s *State) []Op {
	ops := make([]Op, 1+g.choose(3))
	for i := range ops {
		ops[i] = g.op(s)
	}
	return ops
}

// op returns one operation. Kinds that make progress are drawn more often.
func (g *generator) op(s *State) Op {
	switch n := g.choose(134); {
	case n < 8:
		return g.assign(s)
	case n < 18:
		return g.complete(s)
	case n < 24:
		return g.fail(s)
	case n < 34:
		return g.upload(s)
	case n < 37:
		return g.begin(s)
	case n < 40:
		if g.choose.one(2) {
			return &RequeueLost{Items: g.helds(s)}
		}
		return &Requeue{Items: g.helds(s)}
	case n < 43:
		if g.choose.one(2) {
			return g.checkpoint(s)
		}
		return g.recordStart(s)
	case n < 45:
		return g.lose(s)
	case n < 49:
		return g.due(s)
	case n < 55:
		return g.worker(s)
	case n < 62:
		return g.user(s)
	case n < 68:
		return g.deadLetter(s)
	case n < 72:
		return g.notice(s)
	case n < 78:
		return g.update(s)
	case n < 86:
		return g.reuse(s)
	case n < 106:
		return g.identity(s)
	case n < 120:
		if g.alone { // runs may wait for each other
			return g.begin(s)
		}
		return g.schedule(s)
	case n < 127 && !g.alone:
		return g.gate(s)
	case n < 129:
		return g.queue(s)
	case n < 132:
		return g.limit()
	default:
		return g.cluster()
	}
}

// reuse remembers a result, ends a task with one, or forgets one.
func (g *generator) reuse(s *State) Op {
	switch g.choose(7) {
	case 0, 1, 2:
		_, at := g.findRef(s, Completed)
		return &RememberResults{Items: []RememberItem{{at, int64(g.choose(2500))}}}
	case 3:
		return &ForgetResults{Items: []string{fmt.Sprintf("\x00k%d", g.choose(3))}}
	default:
		_, at := g.findRef(s, Pending)
		return &ReuseResults{Items: []TaskRef{at, g.task(s)}}
	}
}

func (g *generator) text() string {
	return []string{"", "exit 1", "exit 2", "out of memory", string(make([]byte, maxText)), string(make([]byte, maxText+1))}[g.odd(4, 6)]
}

// odd draws below usual, but once in twenty below all.
func (g *generator) odd(usual, all int) int {
	if g.choose.one(20) {
		return g.choose(all)
	}
	return g.choose(usual)
}

func (g *generator) job(s *State) JobID {
	if g.choose.one(25) {
		return JobID(g.choose(300))
	}
	n := int(s.NextJob())
	return JobID(max(1, n-1-g.choose(min(n, 4))))
}

func (g *generator) task(s *State) TaskRef {
	return TaskRef{Job: g.job(s), Index: uint32(g.odd(g.most+3, g.most+5))}
}

// findRef returns a random task in one of the states, if it finds one.
func (g *generator) findRef(s *State, states ...TaskState) (Task, TaskRef) {
	var found []TaskRef
	for j := range s.Jobs(0) {
		for i := range j.Total {
			r, _ := s.Task(ref(j.ID, i))
			for _, state := range states {
				if r.State == state {
					found = append(found, ref(j.ID, i))
				}
			}
		}
	}
	at := g.task(s)
	if len(found) > 0 && !g.choose.one(8) {
		at = found[g.choose(len(found))]
	}
	t, _ := s.Task(at)
	return t, at
}

// held returns an attempt: mostly a live one, otherwise one that ended or never
// existed.
func (g *generator) held(s *State) HeldAttempt {
	t, at := g.findRef(s, Assigned)
	h := HeldAttempt{AttemptRef{at, t.Attempt}, t.Worker}
	switch g.choose(16) {
	case 0:
		h.Attempt++
	case 1:
		h.Attempt--
	case 2:
		h.Worker++
	}
	return h
}

func (g *generator) helds(s *State) []HeldAttempt {
	items := make([]HeldAttempt, 1+g.choose(2))
	for i := range items {
		items[i] = g.held(s)
	}
	return items
}

func (g *generator) assign(s *State) Op {
	o, others := new(Assign), new(AssignAlternative)
	for range 1 + g.choose(3) {
		t, at := g.findRef(s, Pending)
		next := t.Attempt + 1
		if g.choose.one(16) {
			next += uint32(g.choose(3)) - 1
		}
		h := HeldAttempt{AttemptRef{at, next}, WorkerID(1 + g.odd(3, 6))}
		o.Items = append(o.Items, AssignItem(h))
		others.Items = append(others.Items, AlternativeItem{h, uint8(1 + g.odd(2, 5) - g.odd(1, 2))}) //nolint:gosec // 0 to 5
	}
	if g.choose.one(4) {
		return others
	}
	return o
}

func (g *generator) complete(s *State) Op {
	o := new(Complete)
	for range 1 + g.choose(3) {
		it := CompleteItem{HeldAttempt: g.held(s), DurationMS: uint32(g.choose(50))}
		if g.choose.one(3) {
			it.Result = make([]byte, []int{0, 1, 7, maxResult, maxResult + 1}[g.odd(4, 5)])
		}
		if g.choose.one(3) {
			it.OutputSize, it.OutputSHA256 = int64(g.choose(1000)), make([]byte, []int{32, 0, 31, 300}[g.odd(2, 4)])
		}
		o.Items = append(o.Items, it)
	}
	return o
}

func (g *generator) fail(s *State) Op {
	o := new(Fail)
	for range 1 + g.choose(2) {
		o.Items = append(o.Items, FailItem{
			HeldAttempt: g.held(s), DurationMS: uint32(g.choose(50)), Next: []Next{NextRetry, NextRetry, NextDead, NextFailed, 0, 4}[g.odd(4, 6)],
			Due: int64(g.choose(1000)) - 100, CountsAsRetry: g.choose.one(2), Error: g.text(),
		})
	}
	return o
}

func (g *generator) checkpoint(s *State) Op {
	o := &Checkpoint{HeldAttempt: g.held(s), Saved: SavedCheckpoint{Number: uint32(g.odd(5, 6)), Format: CheckpointFormat(1 + g.odd(2, 3))}}
	if g.choose.one(3) {
		o.Saved.File = []string{"a/1", "a/2", string(make([]byte, maxCheckpointFile)), string(make([]byte, maxCheckpointFile+1))}[g.odd(2, 4)]
		o.Saved.Size, o.Saved.SHA256 = int64(g.choose(1000)), make([]byte, []int{32, 0, 31}[g.odd(1, 3)])
		return o
	}
	o.Saved.Data = make([]byte, []int{0, 1, 7, 100, maxCheckpoint, maxCheckpoint + 1}[g.odd(4, 6)])
	o.Saved.Size = int64(len(o.Saved.Data) + g.odd(1, 2))
	return o
}

func (g *generator) due(s *State) Op {
	t, at := g.findRef(s, Scheduled)
	if g.choose.one(16) {
		t.Attempt++
	}
	return &Due{Items: []AttemptRef{{at, t.Attempt}}}
}

func (g *generator) begin(s *State) Op {
	id := s.NextJob()
	if g.choose.one(16) {
		id += JobID(g.choose(3)) - 1
	}
	p := randomPlan(g.choose, g.most)
	if !g.alone && g.choose.one(3) {
		p.needs = g.needs(s)
	}
	p.name = []string{"plan", "plan", "other", "a b"}[g.odd(3, 4)]
	if !g.alone {
		p.times = g.times(s)
	}
	p.queue = []string{"", "", "", "", DefaultQueue, "etl", "ml"}[g.choose(7)]
	if g.choose.one(12) {
		p.uses = []string{[]string{"db", "tenant/acme"}[g.choose(2)]}
	}
	if g.choose.one(2) {
		p.either = someAlternatives
	}
	o := &BeginUpload{ID: id, Key: fmt.Sprintf("k%d", g.choose(12)), KeyExpires: int64(g.choose(1000)), Header: p.header(), Total: uint32(len(p.tasks))}
	switch g.choose(40) {
	case 0:
		o.Key = ""
	case 1:
		o.Header = []byte{0xff}
	case 2:
		o.Header = nil
	case 3:
		o.Total = 0
	default:
		if id == s.NextJob() {
			g.plans[id] = p
		}
	}
	return o
}

// needs returns needed jobs, mostly some that exist.
func (g *generator) needs(s *State) (list []*dtaskv1.JobNeed) {
	for range 1 + g.choose(3) {
		n := &dtaskv1.JobNeed{Job: uint64(g.job(s)), Condition: []dtaskv1.Condition{0, 1, 2, 4, 3, 5}[g.odd(4, 6)]}
		if g.choose.one(4) {
			n.EndedAs = dtaskv1.JobState([]int{3, 4, 5, 1, 9}[g.odd(3, 5)])
		}
		list = append(list, n)
	}
	return list
}

// upload continues an upload.
func (g *generator) upload(s *State) Op {
	id := g.job(s)
	for u := range s.Uploads() {
		if !g.choose.one(3) {
			id = u
		}
	}
	p := g.plans[id]
	if p == nil {
		return g.begin(s)
	}
	done := len(p.tasks)
	if j := s.jobs.get(id); j != nil {
		done = int(j.records.n)
	}
	if g.choose.one(16) {
		done = g.choose(len(p.tasks))
	}
	switch {
	case g.choose.one(25):
		return &DropUpload{Job: id}
	case done < len(p.tasks) && !g.choose.one(25):
		return g.chunk(id, p, done)
	default:
		sum := p.sum()
		if g.choose.one(16) {
			sum++
		}
		seal := SealUpload{Job: id, Sum: sum, Digest: [16]byte{byte(id), 1}}
		if j := s.jobs.get(id); (j != nil && IsGated(j.header)) != g.choose.one(10) {
			gated := SealGated(seal)
			return &gated
		}
		return &seal
	}
}

func (g *generator) chunk(id JobID, p *jobPlan, done int) Op {
	n := 1 + g.choose(len(p.tasks)-done)
	if !g.choose.one(30) {
		return &AddChunk{Job: id, Chunk: p.chunk(done, done+n)}
	}
	b := NewChunkBuilder(uint32(done))
	switch g.choose(3) {
	case 0:
		b.Add("", 0, nil, nil)
	case 1:
		b.Add("bad", 9, nil, nil)
	case 2: // empty
	}
	return &AddChunk{Job: id, Chunk: b.Chunk()}
}

func (g *generator) worker(s *State) Op {
	id := WorkerID(1 + g.choose(int(s.NextWorker())))
	switch g.choose(8) {
	case 0, 1:
		return &MarkWorkerDown{ID: id, Reason: g.text()}
	case 2:
		return &DrainWorker{ID: id, Until: int64(g.odd(100, 200)) - 1, Reason: g.text()}
	case 3, 4:
		return &UndrainWorker{ID: id}
	case 5, 6:
		if g.choose.one(3) {
			return g.forgetWorkers(s)
		}
	}
	o := worker(WorkerID(1 + g.choose(4)))
	if w := s.WorkerByName(o.Name); w != nil {
		o.ID = w.ID
	} else {
		o.ID = s.NextWorker()
	}
	if g.choose.one(16) {
		o.ID++
	}
	if g.choose.one(30) {
		o.Incarnation = ""
	}
	o.Slots = uint32(g.choose(4))
	return o
}

// user makes what users, deadlines and cleanup request.
func (g *generator) user(s *State) Op {
	switch g.choose(7) {
	case 0:
		return &CancelJob{Job: g.job(s), Reason: g.text(), IncludeCleanup: g.choose.one(3)}
	case 1:
		return &FailJob{Job: g.job(s), Error: g.text()}
	case 2, 3:
		return &CancelTask{Task: g.task(s), Reason: g.text(), WholeArray: g.choose.one(3)}
	case 4:
		return &FailTask{Task: g.task(s), Error: g.text()}
	case 5:
		return &ForgetKeys{Items: []string{fmt.Sprintf("k%d", g.choose(12)), fmt.Sprintf("k%d", g.choose(12))}}
	default:
		ids := []JobID{g.job(s), g.job(s)}
		if g.choose.one(2) {
			return &ExpireHistory{EndedBefore: int64(g.choose(3))}
		}
		return &Archive{Items: ids}
	}
}

// deadLetter makes requests of users for failed tasks.
func (g *generator) deadLetter(s *State) Op {
	if g.choose.one(4) {
		_, at := g.findRef(s, Dead)
		return &Purge{Job: at.Job, Tasks: g.indexes(s, at), Precondition: g.precondition()}
	}
	_, at := g.findRef(s, Failed, Dead, Lost, Cancelled)
	return &Revive{Job: at.Job, Tasks: g.indexes(s, at), Precondition: g.precondition()}
}

// notice makes the leader's operations on notifications.
func (g *generator) notice(s *State) Op {
	if g.choose.one(2) {
		_, at := g.findRef(s, Dead)
		return &NotifyDeadLetters{Items: []DeadLetterNotification{{at, []NotificationKind{DeadLetterWebhookNotification, DeadLetterCommandNotification, 0, JobFailedNotification, 200}[g.odd(2, 5)]}}}
	}
	o := new(RecordDelivered)
	waiting := s.Notifications(0)
	for range 1 + g.choose(2) {
		it := Delivery{Number: uint64(g.choose(5)), Delivered: g.choose.one(2)}
		if len(waiting) > 0 && !g.choose.one(8) {
			it.Number = waiting[g.choose(len(waiting))].Number
		}
		o.Items = append(o.Items, it)
	}
	return o
}

// indexes returns no task, one, or some in one state, mostly ascending.
func (g *generator) indexes(s *State, at TaskRef) []uint32 {
	if g.choose.one(2) {
		return nil
	}
	t, _ := s.Task(at)
	var list []uint32
	for i := range uint32(g.most) + 3 {
		other, ok := s.Task(ref(at.Job, i))
		if i == at.Index || ok && other.State == t.State && g.choose.one(4) {
			list = append(list, i)
		}
	}
	if g.choose.one(12) {
		list = append(list, uint32(g.choose(g.most+2)))
	}
	return list
}

func (g *generator) cluster() Op {
	switch g.choose(4) {
	case 3:
		return &SetLevel{Level: Level(g.choose(int(MaxLevel) + 1)), Held: g.choose.one(2)}
	case 0:
		return &SetClusterID{ID: []string{"", "c0ffee", "other"}[g.choose(3)]}
	case 1:
		o := &Replica{ServerID: fmt.Sprintf("n%d", g.choose(4)), Instance: fmt.Sprintf("i%d", g.choose(2)), LowWaterMark: uint64(g.choose(3))}
		if g.choose.one(4) {
			o.Replaces = fmt.Sprintf("n%d", g.choose(4))
		}
		return o
	default:
		return &StartTerm{Term: uint64(g.choose(200)), ServerID: "n1"}
	}
}

// seeded returns a deterministic chooser.
func seeded(seed uint64) chooser { return rand.New(rand.NewPCG(seed, 1)).IntN }

// forgetWorkers forgets workers, mostly those that may be forgotten.
func (g *generator) forgetWorkers(s *State) Op {
	var ids []WorkerID
	for w := range s.Workers() {
		if w.State == WorkerDown && s.LiveAttempts(w.ID) == 0 || g.choose.one(8) {
			ids = append(ids, w.ID)
		}
	}
	if g.choose.one(4) {
		ids = append(ids, WorkerID(g.choose(5)))
	}
	return &ForgetWorkers{IDs: ids}
}

// recordStart logs the start of at-most-once attempts, if there are any.
func (g *generator) recordStart(s *State) Op {
	items := g.helds(s)
	for j := range s.Jobs(0) {
		for i := range j.Total {
			t, _ := s.Task(ref(j.ID, i))
			if t.State == Assigned && j.Policy(t.Policy).GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE && g.choose.one(2) {
				items[0] = hold(j.ID, i, t.Attempt, t.Worker)
			}
		}
	}
	return &RecordStart{Items: items}
}

// lose ends an at-most-once attempt whose start is logged, if there is one.
func (g *generator) lose(s *State) Op {
	items := g.helds(s)
	for j := range s.Jobs(0) {
		for i := range j.Total {
			if t, _ := s.Task(ref(j.ID, i)); t.State == Assigned && t.StartLogged && g.choose.one(2) {
				items[0] = hold(j.ID, i, t.Attempt, t.Worker)
			}
		}
	}
	return &Lose{Items: items}
}
