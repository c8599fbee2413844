package fsm

import (
	"errors"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxVariants is the maximum number of policies that updates can add to a
// job. Each costs a few hundred bytes.
const maxVariants = 1 << 16

// updates are the changes of a job since its submission. The submitted form
// is immutable. A job without updates has none.
type updates struct {
	own      *ownership
	variants []variantPolicy // numbered after the header's policies
	pages    []*updatePage   // one for each page of records; nil: no changes
}

// variant is a policy of the header with changes. It is comparable, so that
// equal changes of a policy share a variant.
type variant struct {
	base       uint32 // policy of the header
	set        UpdateFields
	ofJob      bool // the priority is that of the whole job
	priority   dtaskv1.Priority
	maxRetries uint32
	timeoutMS  int64
}

// variantPolicy is a variant and the resulting policy. It never changes.
type variantPolicy struct {
	variant
	policy *dtaskv1.TaskPolicy
}

// updatePage has the changes of the tasks of one page of records.
type updatePage struct {
	own       *ownership
	policy    []uint32          // number of the policy + 1; 0 = as submitted
	notBefore []int64           // ms; 0 = immediately
	bodies    map[uint32][]byte // by position in the page
}

// taskUpdate is the changes of one task.
type taskUpdate struct {
	policy    uint32 // number + 1; 0 = as submitted
	notBefore int64
	body      []byte // nil = as submitted
}

// of returns the changes of a task.
func (u *updates) of(i uint32) taskUpdate {
	if u == nil || u.pages[i/pageSize] == nil {
		return taskUpdate{}
	}
	p, at := u.pages[i/pageSize], i%pageSize
	return taskUpdate{p.policy[at], p.notBefore[at], p.bodies[at]}
}

// writeUpdates returns the job's updates for changing.
func (j *job) writeUpdates(own *ownership) *updates {
	switch u := j.updates; {
	case u == nil:
		j.updates = &updates{own: own, pages: make([]*updatePage, (j.total+pageSize-1)/pageSize)}
	case u.own != own:
		j.updates = &updates{own: own, variants: slices.Clip(u.variants), pages: slices.Clone(u.pages)}
	}
	return j.updates
}

// setUpdate sets the changes of a task.
func (j *job) setUpdate(own *ownership, i uint32, to taskUpdate) {
	u, no, at := j.writeUpdates(own), i/pageSize, i%pageSize
	p := u.pages[no]
	switch {
	case p == nil:
		n := min(pageSize, j.total-no*pageSize)
		p = &updatePage{own: own, policy: make([]uint32, n), notBefore: make([]int64, n)}
		u.pages[no] = p
	case p.own != own:
		p = &updatePage{own: own, policy: slices.Clone(p.policy), notBefore: slices.Clone(p.notBefore), bodies: maps.Clone(p.bodies)}
		u.pages[no] = p
	}
	p.policy[at], p.notBefore[at] = to.policy, to.notBefore
	if to.body != nil {
		if p.bodies == nil {
			p.bodies = make(map[uint32][]byte)
		}
		p.bodies[at] = to.body
	}
}

// policyNumber is the number of a task's policy: of the header's, or a variant.
func (j *job) policyNumber(i uint32) uint32 {
	if p := j.updates.of(i).policy; p > 0 {
		return p - 1
	}
	return j.submittedPolicy(i)
}

// count is the number of variants.
func (u *updates) count() uint32 {
	if u == nil {
		return 0
	}
	return uint32(len(u.variants)) //nolint:gosec // ≤ maxVariants
}

// policies is the number of all policies, variants included.
func (j *job) policies() uint32 {
	return uint32(len(j.header.GetPolicies())) + j.updates.count() //nolint:gosec // bounded by the header
}

// policyOf returns a policy by its number.
func (j *job) policyOf(number uint32) *dtaskv1.TaskPolicy {
	return policyOf(j.header, j.updates, number)
}

func policyOf(h *dtaskv1.JobHeader, u *updates, number uint32) *dtaskv1.TaskPolicy {
	if n := uint32(len(h.GetPolicies())); number >= n { //nolint:gosec // bounded by the header
		return u.variants[number-n].policy
	}
	return h.GetPolicies()[number]
}

// variantOf returns a policy as a variant; a policy of the header is one
// without changes.
func (j *job) variantOf(number uint32) variant {
	if n := uint32(len(j.header.GetPolicies())); number >= n { //nolint:gosec // bounded by the header
		return j.updates.variants[number-n].variant
	}
	return variant{base: number}
}

// apply returns the policy of a variant.
func (v *variant) apply(h *dtaskv1.JobHeader) variantPolicy {
	p := proto.CloneOf(h.GetPolicies()[v.base])
	if v.set&SetPriority != 0 {
		p.Priority = v.priority
	}
	if v.set&SetTimeout != 0 {
		p.TimeoutMs = v.timeoutMS
	}
	if v.set&SetMaxRetries != 0 {
		if p.GetRetry() == nil {
			p.Retry = new(dtaskv1.RetryPolicy)
		}
		p.Retry.Max = v.maxRetries
	}
	return variantPolicy{variant: *v, policy: p}
}

// body is the encoded body of a task.
func (j *job) body(i uint32) []byte {
	if b := j.updates.of(i).body; b != nil {
		return b
	}
	return j.task(i).body
}

// priorityNow is the job's current priority.
func (j *job) priorityNow() dtaskv1.Priority {
	if j.priority != 0 {
		return j.priority
	}
	return j.header.GetPriority()
}

// A snapshot has the variants of a job in its first frame. Its updated tasks
// are in frames after its notes, ascending.

func (v *variant) fields(c *coder) {
	number(c, &v.base)
	number(c, &v.set)
	c.bool(&v.ofJob)
	c.priority(&v.priority)
	number(c, &v.maxRetries)
	c.i64(&v.timeoutMS)
}

func (u *updates) variantList() []variant {
	list := make([]variant, u.count())
	for k := range list {
		list[k] = u.variants[k].variant
	}
	return list
}

// fields codes what was updated of a task. step is its index, as the
// difference to the updated task before it.
func (t *taskUpdate) fields(c *coder, step *uint32) {
	number(c, step)
	number(c, &t.policy)
	c.i64(&t.notBefore)
	hasBody := t.body != nil
	c.bool(&hasBody)
	c.bytes(&t.body)
	if c.d != nil && hasBody {
		t.body = append([]byte{}, t.body...) // not nil, even if it is empty
	}
}

// eachTask calls f for every changed task, ascending.
func (u *updates) eachTask(f func(i uint32, t taskUpdate)) {
	if u == nil {
		return
	}
	for no, p := range u.pages {
		if p == nil {
			continue
		}
		for at := range p.policy {
			i := uint32(no)*pageSize + uint32(at) //nolint:gosec // at most a million
			if t := u.of(i); t.policy != 0 || t.notBefore != 0 || t.body != nil {
				f(i, t)
			}
		}
	}
}

// changed is the number of changed tasks.
func (u *updates) changed() uint32 {
	n := uint32(0)
	u.eachTask(func(uint32, taskUpdate) { n++ })
	return n
}

// isEmpty reports whether nothing differs from the submitted form.
func (u *updates) isEmpty() bool { return u.count() == 0 && u.changed() == 0 }

func (f *frameWriter) updates(j *job) {
	last := uint32(0)
	j.updates.eachTask(func(i uint32, t taskUpdate) {
		step := i - last
		last = i
		t.fields(&f.c, &step)
		if f.contents() > noteSize {
			f.frame(frameUpdates)
		}
	})
	if f.contents() > 0 {
		f.frame(frameUpdates)
	}
}

// updates reads the changes of a job. Whatever its accessors rely on is
// checked here or in Check.
func (f *frameReader) updates(j *job, variants []variant, changed uint32) error {
	if len(variants) == 0 && changed == 0 {
		return nil
	}
	if len(variants) > maxVariants || changed > j.records.n || j.records.n != j.total {
		return errors.New("too many updates")
	}
	u := j.writeUpdates(f.s.own)
	for _, v := range variants {
		if int(v.base) >= len(j.header.GetPolicies()) {
			return errors.New("update of an unknown policy")
		}
		u.variants = append(u.variants, v.apply(j.header))
	}
	for i := uint32(0); changed > 0; {
		d, err := f.expect(frameUpdates)
		if err != nil {
			return err
		}
		for c := (coder{d: d}); len(d.b) > 0 && changed > 0; {
			var step uint32
			var t taskUpdate
			if t.fields(&c, &step); d.err != nil {
				break
			}
			if uint64(i)+uint64(step) >= uint64(j.records.n) {
				return errors.New("update of an unknown task")
			}
			i += step
			j.setUpdate(f.s.own, i, t)
			changed--
		}
		if err := d.done(); err != nil {
			return err
		}
	}
	return nil
}
