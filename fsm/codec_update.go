package fsm

import (
	"errors"
	"fmt"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (o *Update) encode(e *encoder) {
	e.u64(uint64(o.Job))
	e.bool(o.WholeJob)
	e.u64(uint64(o.Task))
	e.u64(o.IfVersion)
	e.str(o.Key)
	e.i64(o.KeyExpires)
	e.b = append(e.b, o.Digest[:]...)
	e.byte(byte(o.Set))
	e.u64(uint64(o.Priority)) //nolint:gosec // an enum
	e.u64(uint64(o.MaxRetries))
	e.i64(o.TimeoutMS)
	e.i64(o.NotBeforeMS)
	e.bytes(o.Body)
}

func (o *Update) decode(d *decoder) {
	o.Job, o.WholeJob, o.Task = JobID(d.u64()), d.bool(), d.u32()
	o.IfVersion = d.u64()
	o.Key, o.KeyExpires = d.str(), d.i64()
	d.array(&o.Digest)
	if o.Set = UpdateFields(d.byte()); o.Set >= allFields {
		d.fail(&UnknownError{What: "an update field"})
	}
	o.Priority = d.priority()
	o.MaxRetries = d.u32()
	o.TimeoutMS = d.i64()
	o.NotBeforeMS = d.i64()
	o.Body = d.bytes()
}

// priority reads one of the priorities, or 0 for none.
func (d *decoder) priority() dtaskv1.Priority {
	n := d.u64()
	if n > uint64(dtaskv1.Priority_PRIORITY_URGENT) {
		d.fail(fmt.Errorf("number %d is no priority", n))
		return 0
	}
	return dtaskv1.Priority(n) //nolint:gosec // just checked
}

// In a snapshot the variants of a job are in its frame, and what was changed of
// its tasks is in frames behind its notes: the index as the difference to the
// one before, policy + 1, time, and body; of changed tasks alone, ascending.

func (e *encoder) variants(u *updates) {
	e.u64(uint64(u.count()))
	for k := range u.count() {
		v := u.variants[k].variant
		e.u64(uint64(v.base))
		e.byte(byte(v.set))
		e.bool(v.ofJob)
		e.u64(uint64(v.priority)) //nolint:gosec // an enum
		e.u64(uint64(v.maxRetries))
		e.i64(v.timeoutMS)
	}
}

func (d *decoder) variants() []variant {
	list := make([]variant, d.count(6))
	for k := range list {
		list[k] = variant{base: d.u32(), set: UpdateFields(d.byte()), ofJob: d.bool(), priority: d.priority(), maxRetries: d.u32(), timeoutMS: d.i64()}
	}
	return list
}

// each calls f for every task of which something is changed, ascending.
func (u *updates) each(f func(i uint32, t taskUpdate)) {
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

// changed is the number of tasks of which something is changed.
func (u *updates) changed() uint32 {
	n := uint32(0)
	u.each(func(uint32, taskUpdate) { n++ })
	return n
}

func (f *frameWriter) updates(j *job) {
	last := uint32(0)
	j.updates.each(func(i uint32, t taskUpdate) {
		f.e.u64(uint64(i - last))
		last = i
		f.e.u64(uint64(t.policy))
		f.e.i64(t.notBefore)
		f.e.bool(t.body != nil)
		f.e.bytes(t.body)
		if f.contents() > noteSize {
			f.frame(frameUpdates)
		}
	})
	if f.contents() > 0 {
		f.frame(frameUpdates)
	}
}

// updates reads what was changed of a job. All that its accessors rely on is
// checked here or in Check.
func (f *frameReader) updates(j *job, variants []variant, changed uint32) error {
	if len(variants) == 0 && changed == 0 {
		return nil
	}
	if len(variants) > maxVariants || changed > j.records.n || j.records.n != j.total {
		return errors.New("has more updates than it can have")
	}
	u := j.writeUpdates(f.s.own)
	for _, v := range variants {
		if int(v.base) >= len(j.header.GetPolicies()) {
			return errors.New("has an update of a policy that is not there")
		}
		u.variants = append(u.variants, v.apply(j.header))
	}
	for i := uint32(0); changed > 0; {
		d, err := f.expect(frameUpdates)
		if err != nil {
			return err
		}
		for len(d.b) > 0 && d.err == nil && changed > 0 {
			step := d.u32()
			t := taskUpdate{policy: d.u32(), notBefore: d.i64()}
			if given, body := d.bool(), d.bytes(); given {
				t.body = append([]byte{}, body...)
			}
			if d.err != nil {
				break
			}
			if uint64(i)+uint64(step) >= uint64(j.records.n) {
				return errors.New("has an update of a task that is not there")
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
