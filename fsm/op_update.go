package fsm

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// UpdateFields is a set of fields that an Update changes.
type UpdateFields uint8

// The fields that an Update can change.
const (
	SetPriority UpdateFields = 1 << iota
	SetMaxRetries
	SetTimeout
	SetNotBefore
	SetBody
	allFields
)

// maxRetries is the maximum number of retries in a policy.
const maxRetries = 1_000_000

// Update changes one task that has not started, or with WholeJob all such
// tasks of a job. It takes effect as a whole.
type Update struct {
	Job      JobID
	WholeJob bool   // all tasks that have had no attempt
	Task     uint32 // index; 0 with WholeJob
	Precondition

	Set         UpdateFields
	Priority    dtaskv1.Priority // with WholeJob: of tasks with the job's priority
	MaxRetries  uint32
	TimeoutMS   int64
	NotBeforeMS int64  // 0 = immediately
	Body        []byte // dtask.v1.TaskBody; not with WholeJob
}

func (*Update) kind() opKind { return 30 }

func (o *Update) fields(c *coder) {
	number(c, &o.Job)
	c.bool(&o.WholeJob)
	number(c, &o.Task)
	o.Precondition.fields(c)
	if number(c, &o.Set); o.Set >= allFields {
		c.fail(&UnknownError{What: "update field"})
	}
	c.priority(&o.Priority)
	number(c, &o.MaxRetries)
	c.i64(&o.TimeoutMS)
	c.i64(&o.NotBeforeMS)
	c.bytes(&o.Body)
}

// apply changes a job.
// Rejects: JobNotFound, TaskNotFound, KeyConflict if the key is known,
// VersionMismatch, AlreadyEnded if the job has ended, WrongState if the task,
// or every task, has started or ended, LimitExceeded if the job would have
// too many different policies, Malformed.
func (o *Update) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	if r := o.refusal(s, j); r != Accepted {
		return r
	}
	first, end := o.Task, o.Task+1
	if o.WholeJob {
		first, end = 0, j.total
	}
	numbers, fresh, found := o.revise(j, first, end)
	switch {
	case !found:
		return WrongState
	case int(j.policies())-len(j.header.GetPolicies())+len(fresh) > maxVariants:
		return LimitExceeded
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	if len(fresh) > 0 {
		u := j.writeUpdates(s.own)
		for _, v := range fresh {
			s.mixVariant(v)
			u.variants = append(u.variants, v.apply(j.header))
		}
	}
	var ready []TaskRun
	left := j.counts[Pending]
	for i := first; i < end; i++ {
		if j.notStarted(i) && o.task(s, j, i, numbers, fx) {
			ready = extendRuns(ready, TaskRef{o.Job, i}, 1)
			left--
		}
	}
	// After SetNotBefore, some may have become ready, and others wait again.
	fx.reordered(ready, o.WholeJob && left == 0 && o.Set&SetNotBefore == 0)
	if o.Set&SetNotBefore != 0 && o.NotBeforeMS == 0 && j.updates != nil && j.updates.isEmpty() {
		j.updates = nil // as after a snapshot: the tasks of a job with updates are readied in another way
	}
	if o.WholeJob && o.Set&SetPriority != 0 {
		j.priority = o.Priority
	}
	o.changed(s, j, 0)
	s.mixJob(j)
	return Accepted
}

func (o *Update) refusal(s *State, j *job) Reason {
	if j == nil {
		return JobNotFound
	}
	if o.malformed() {
		return Malformed
	}
	if r := o.check(s, j); r != Accepted {
		return r
	}
	switch {
	case o.Task >= j.total:
		return TaskNotFound
	case j.state.Terminal():
		return AlreadyEnded
	}
	return Accepted
}

func (o *Update) malformed() bool {
	set := func(f UpdateFields) bool { return o.Set&f != 0 }
	return o.Set == 0 || o.Set >= allFields || o.WholeJob && (set(SetBody) || o.Task != 0) ||
		set(SetPriority) && (o.Priority < dtaskv1.Priority_PRIORITY_LOW || o.Priority > dtaskv1.Priority_PRIORITY_URGENT) ||
		set(SetMaxRetries) && o.MaxRetries > maxRetries || set(SetTimeout) && o.TimeoutMS <= 0 || set(SetNotBefore) && o.NotBeforeMS < 0 ||
		set(SetBody) && (len(o.Body) > maxBlob || proto.Unmarshal(o.Body, new(dtaskv1.TaskBody)) != nil)
}

// notStarted reports whether a task waits and has had no attempt.
func (j *job) notStarted(i uint32) bool {
	r := j.records.at(i)
	return r.attempt == 0 && (r.state == Blocked || r.state == Scheduled || r.state == Pending)
}

// revise returns the policies that the tasks of a range have after the
// update, by the number of their current policy, and the new ones among them.
// some is false if no task of the range can be changed.
func (o *Update) revise(j *job, first, end uint32) (numbers []uint32, fresh []variant, some bool) {
	count := j.policies()
	numbers = make([]uint32, count) // one more than the number; zero if unused
	for i := first; i < end; i++ {
		if !j.notStarted(i) {
			continue
		}
		some = true
		old := j.policyNumber(i)
		if numbers[old] != 0 {
			continue
		}
		v := j.variantOf(old)
		changed := o.change(j, v)
		if changed == v {
			numbers[old] = old + 1
			continue
		}
		at, found := j.findVariant(changed)
		if !found {
			k := slices.Index(fresh, changed)
			if k < 0 {
				k = len(fresh)
				fresh = append(fresh, changed)
			}
			at = count + uint32(k) //nolint:gosec // at most one for each policy
		}
		numbers[old] = at + 1
	}
	return numbers, fresh, some
}

// findVariant returns the number of an existing variant.
func (j *job) findVariant(v variant) (number uint32, found bool) {
	if j.updates == nil {
		return 0, false
	}
	k := slices.IndexFunc(j.updates.variants, func(have variantPolicy) bool { return have.variant == v })
	return uint32(len(j.header.GetPolicies()) + k), k >= 0 //nolint:gosec // ≤ maxVariants
}

// change returns a policy after the update.
func (o *Update) change(j *job, v variant) variant {
	own := j.header.GetPolicies()[v.base].GetPriority() != dtaskv1.Priority_PRIORITY_UNSPECIFIED
	if v.set&SetPriority != 0 {
		own = !v.ofJob
	}
	if o.Set&SetPriority != 0 && (!o.WholeJob || !own) {
		v.set, v.priority, v.ofJob = v.set|SetPriority, o.Priority, o.WholeJob
	}
	if o.Set&SetMaxRetries != 0 {
		v.set, v.maxRetries = v.set|SetMaxRetries, o.MaxRetries
	}
	if o.Set&SetTimeout != 0 {
		v.set, v.timeoutMS = v.set|SetTimeout, o.TimeoutMS
	}
	return v
}

// task changes one task that has not started, and reports whether it was ready.
func (o *Update) task(s *State, j *job, i uint32, numbers []uint32, fx *Effects) (ready bool) {
	old, number := j.updates.of(i), j.policyNumber(i)
	now := old
	if to := numbers[number]; to != number+1 {
		now.policy = to
	}
	r := j.records.at(i)
	was := r.state
	if o.Set&SetNotBefore != 0 && (o.NotBeforeMS != 0 || was != Pending) { // a ready task has no start time
		now.notBefore = o.NotBeforeMS
	}
	if o.Set&SetBody != 0 {
		now.body = bytes.Clone(o.Body) // outlives the entry
		if now.body == nil {
			now.body = []byte{}
		}
	}
	if now.policy == old.policy && now.notBefore == old.notBefore && o.Set&SetBody == 0 {
		return false
	}
	s.mix(uint64(j.id)<<32 | uint64(i))
	s.mixUpdate(old)
	s.mixUpdate(now)
	j.setUpdate(s.own, i, now)
	switch {
	case was == Pending && now.notBefore != old.notBefore:
		s.postpone(j, i, fx)
	case was == Scheduled && now.notBefore == 0:
		s.mixRecord(s.makeReady(j, i, fx))
	case was == Scheduled && r.ended != now.notBefore:
		r = j.records.write(s.own, i)
		s.mixRecord(r)
		r.ended = now.notBefore
		s.mixRecord(r)
		fx.scheduled(AttemptRef{TaskRef: TaskRef{j.id, i}}, r.ended)
	}
	return was == Pending
}

// makeReady readies a task without open dependencies. If an update set a
// start time, the first attempt waits for it.
func (s *State) makeReady(j *job, i uint32, fx *Effects) *record {
	if j.updates.of(i).notBefore != 0 && j.records.at(i).attempt == 0 {
		return s.postpone(j, i, fx)
	}
	r := s.move(j, i, Pending)
	r.ended = 0
	fx.ready(TaskRef{j.id, i})
	return r
}

// postpone makes a task wait for the time that an update set. The leader
// decides when that time has come.
func (s *State) postpone(j *job, i uint32, fx *Effects) *record {
	r := s.move(j, i, Scheduled)
	r.ended = j.updates.of(i).notBefore
	fx.scheduled(AttemptRef{TaskRef: TaskRef{j.id, i}}, r.ended)
	s.mixRecord(r)
	return r
}

func (d *digester) mixVariant(v variant) {
	ofJob := uint64(0)
	if v.ofJob {
		ofJob = 1
	}
	d.mix(uint64(v.base)<<32 | uint64(v.set)<<16 | ofJob<<8 | uint64(v.priority)) //nolint:gosec // bits only
	d.mix(uint64(v.maxRetries))
	d.mix(uint64(v.timeoutMS)) //nolint:gosec // bits only
}

func (d *digester) mixUpdate(u taskUpdate) {
	d.mix(uint64(u.policy))
	d.mix(uint64(u.notBefore)) //nolint:gosec // bits only
	d.mixBytes(u.body)
}
