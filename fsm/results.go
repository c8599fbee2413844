package fsm

import (
	"cmp"
	"slices"

	"github.com/dtask/dtask/internal/taskbody"
)

// Limits of the table of results. The leader keeps it far smaller. These
// limits belong to the log's format.
const (
	maxResults     = 1 << 20
	maxResultBytes = 1 << 30
	maxReuseKey    = 256
)

// result is the result of a pure task, for others with the same key. Values
// never change.
type result struct {
	job     JobID  // of the task
	task    string // its name
	output  string // where it was published; only tasks with the same output reuse it
	value   []byte // as in a note of a result; shared
	expires int64  // ms
}

// results has the remembered results.
type results struct {
	byKey cowMap[result] // by owner, NUL, key; outside of the default namespace by it, NUL, owner, NUL, key
	bytes uint64         // approximate memory
}

// size is the approximate size of an entry of the table in memory, in bytes.
func (r *result) size(key string) uint64 {
	return uint64(len(key) + len(r.task) + len(r.output) + len(r.value) + 128) //nolint:gosec // lengths
}

// reuse returns the key of a pure task in the table, and its output path; ok
// is false for any other task. Keys belong to the job's owner in its namespace.
func (j *job) reuse(i uint32) (key, output string, ok bool) {
	if j.policy(i).GetReuseMs() <= 0 || j.updates.of(i).body != nil {
		return "", "", false // the key may not fit the new payload
	}
	body := taskbody.Encoded(j.task(i).body)
	key, output = body.ReuseKey(), body.Output()
	if key == "" || len(key) > maxReuseKey || tooLong(output, j.header.GetOwner()) {
		return "", "", false
	}
	key = j.header.GetOwner() + "\x00" + key
	if n := j.header.GetNamespace(); n != "" && n != DefaultNamespace {
		key = n + "\x00" + key
	}
	return key, output, true
}

// RememberItem names a completed pure task, and until when its result is
// remembered.
type RememberItem struct {
	Task    TaskRef
	Expires int64 // ms
}

// RememberResults keeps results of pure tasks under their keys.
type RememberResults = List[RememberItem, rememberOp]

type rememberOp struct{ fixedSize[RememberItem] }

func (rememberOp) kind() opKind { return 34 }

func (rememberOp) fields(c *coder, it *RememberItem) {
	c.task(&it.Task)
	c.i64(&it.Expires)
}

// apply keeps the result of a pure task under its key, in place of the
// previous one.
// Rejects: JobNotFound, TaskNotFound; WrongState unless the task is pure and
// completed by itself, or if the table is full; Malformed if the result has
// expired.
func (rememberOp) apply(s *State, it RememberItem, _ *Effects) Reason {
	j := s.sealedJob(it.Task.Job)
	switch {
	case j == nil:
		return JobNotFound
	case it.Task.Index >= j.total:
		return TaskNotFound
	case it.Expires <= s.now:
		return Malformed
	}
	key, output, ok := j.reuse(it.Task.Index)
	r := j.records.at(it.Task.Index)
	kind, value := j.resultNote(it.Task.Index)
	if !ok || r.state != Completed || kind == noteReused {
		return WrongState
	}
	x := result{job: j.id, task: j.name(it.Task.Index), output: output, value: slices.Clone(value), expires: it.Expires}
	old, known := s.results.byKey.get(key)
	bytes := s.results.bytes + x.size(key)
	if known {
		bytes -= old.size(key)
	}
	if !known && s.results.byKey.n >= maxResults || bytes > maxResultBytes {
		return WrongState
	}
	s.results.bytes = bytes
	s.results.byKey.set(s.own, key, x)
	s.mixResult(key, &x)
	return Accepted
}

// ReuseResults ends ready pure tasks with the results that are remembered
// under their keys.
type ReuseResults = List[TaskRef, reuseOp]

type reuseOp struct{ fixedSize[TaskRef] }

func (reuseOp) kind() opKind { return 35 }

func (reuseOp) fields(c *coder, t *TaskRef) { c.task(t) }

// apply completes a ready task with the result that is remembered under its
// key, and readies its dependents. It makes no attempt.
// Rejects: JobNotFound, TaskNotFound; WrongState unless the task is pending
// and a result with the same output path is known that has not expired.
func (reuseOp) apply(s *State, t TaskRef, fx *Effects) Reason {
	j := s.sealedJob(t.Job)
	switch {
	case j == nil:
		return JobNotFound
	case t.Index >= j.total:
		return TaskNotFound
	case j.records.at(t.Index).state != Pending:
		return WrongState
	}
	x, ok := s.results.reusable(j, t.Index, s.now)
	if !ok {
		return WrongState
	}
	j = s.jobs.write(s.own, t.Job)
	r := s.move(j, t.Index, Completed)
	// No worker completed it: reports of its attempts are superseded.
	r.worker, r.started, r.ended = 0, s.now, s.now
	var e encoder
	e.u64(uint64(x.job))
	e.str(x.task)
	e.b = append(e.b, x.value...)
	if len(x.value) == 0 {
		e.b = append(e.b, resultHead(CompleteItem{})...)
	}
	s.mixBytes(e.b)
	r.note = s.recoveredNote(j, t.Index, j.notes.add(s.own, noteReused, e.b))
	s.mixRecord(r)
	if j.state == JobPending {
		j.state, j.started = JobRunning, s.now
		s.mixJob(j)
	}
	s.taskCompleted(j, t.Index, fx)
	s.settle(j, fx)
	return Accepted
}

// reusable returns the result that a task can be completed with.
func (r *results) reusable(j *job, i uint32, now int64) (result, bool) {
	key, output, ok := j.reuse(i)
	if !ok {
		return result{}, false
	}
	x, known := r.byKey.get(key)
	return x, known && x.expires > now && x.output == output
}

// ForgetResults removes remembered results by their keys.
type ForgetResults = List[string, forgetResultsOp]

type forgetResultsOp struct{}

func (forgetResultsOp) kind() opKind { return 36 }

func (forgetResultsOp) fields(c *coder, key *string) { c.str(key) }

func (forgetResultsOp) size(key *string) int { return len(*key) }

// apply removes a result.
// Rejects: KeyNotFound.
func (forgetResultsOp) apply(s *State, key string, _ *Effects) Reason {
	x, known := s.results.byKey.get(key)
	if !known {
		return KeyNotFound
	}
	s.mixResult(key, &x)
	s.results.bytes -= x.size(key)
	s.results.byKey.delete(s.own, key)
	return Accepted
}

func (d *digester) mixResult(key string, x *result) {
	var e encoder
	x.fields(&coder{e: &e}, &key)
	d.mixBytes(e.b)
}

func (r *result) fields(c *coder, key *string) {
	c.str(key)
	number(c, &r.job)
	c.str(&r.task)
	c.str(&r.output)
	c.clone(&r.value)
	c.i64(&r.expires)
}

// results writes the table, sorted by key within each shard.
func (f *frameWriter) results(s *State) {
	for shard := range shardCount {
		var keys []string
		for key := range s.results.byKey.scan(shard) {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for part := range slices.Chunk(keys, 256) {
			list(&f.c, &part, func(key *string) {
				x, _ := s.results.byKey.get(*key)
				x.fields(&f.c, key)
			})
			f.frame(frameResults)
		}
	}
}

func (f *frameReader) results(d *decoder) {
	s, c := f.s, coder{d: d}
	for range d.count() {
		var key string
		var x result
		x.fields(&c, &key)
		if _, twice := s.results.byKey.get(key); twice || key == "" || len(x.value) > 0 && !soundResult(x.value) {
			d.fail(errTruncated)
		}
		if d.err != nil {
			return
		}
		s.results.byKey.set(s.own, key, x)
		s.results.bytes += x.size(key)
	}
}

// soundResult reports whether a value decodes as that of a result note.
func soundResult(value []byte) bool {
	d := decoder{b: value}
	d.i64()
	hash := int(d.byte())
	return d.err == nil && hash <= len(d.b)
}

// Reusable reports whether a task can be completed with a remembered result
// at a time.
func (s *State) Reusable(t TaskRef, nowMS int64) bool {
	j := s.sealedJob(t.Job)
	if j == nil || t.Index >= j.total {
		return false
	}
	_, ok := s.results.reusable(j, t.Index, nowMS)
	return ok
}

// Results returns the number of remembered results and their approximate size
// in memory.
func (r *results) Results() (n int, bytes uint64) { return r.byKey.n, r.bytes }

// ExpiredResults returns the keys of one of KeyShards shards whose results
// expired at or before a time, sorted, at most limit.
func (r *results) ExpiredResults(part int, nowMS int64, limit int) []string {
	var keys []string
	for key, x := range r.byKey.scan(part % KeyShards) {
		if x.expires <= nowMS {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), limit)]
}

// ResultsByExpiry returns the keys of the results that expire first, at most
// limit. It scans all of them.
func (r *results) ResultsByExpiry(limit int) []string {
	type soon struct {
		key     string
		expires int64
	}
	list := make([]soon, 0, r.byKey.n)
	for shard := range shardCount {
		for key, x := range r.byKey.scan(shard) {
			list = append(list, soon{key, x.expires})
		}
	}
	slices.SortFunc(list, func(a, b soon) int {
		return cmp.Or(cmp.Compare(a.expires, b.expires), cmp.Compare(a.key, b.key))
	})
	var keys []string
	for _, x := range list[:min(len(list), limit)] {
		keys = append(keys, x.key)
	}
	return keys
}
