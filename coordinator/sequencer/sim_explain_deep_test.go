package sequencer

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
)

// ExplainChangesNothing explains a task, and returns an error if that changes the scheduler, the
// timers or the entry. The class of the task may be missing before, if the scheduler does not have
// it yet, or not any more.
func (s *Sequencer) ExplainChangesNothing(ctx context.Context, ref fsm.TaskRef) error {
	q := &query{done: make(chan struct{}), f: func(b *batch) error {
		if t, ok := b.view.Task(ref); ok && t.State != fsm.Assigned {
			policies := s.dispatch.policies
			policies.classOf(b.view, ref, policies.numbered(b.view, ref.Job, t.Policy))
		}
		before := s.deepDigest(b)
		s.explainAll(b, ref)
		if after := s.deepDigest(b); before != after {
			return fmt.Errorf("an explanation of task %v has changed the scheduler, the timers or the entry", ref)
		}
		return nil
	}}
	if !s.ask(ctx, q) {
		return nil // the term has ended
	}
	return q.err
}

// explainAll computes all that an explanation has.
func (s *Sequencer) explainAll(b *batch, ref fsm.TaskRef) {
	q := &question{s: s, task: ref}
	if s.explain(b, q); q.view != nil {
		newCapacity(q.view, q.down, func(fsm.WorkerID) bool { return true })
	}
}

// deepDigest is a digest of the scheduler, the timers and the present entry.
func (s *Sequencer) deepDigest(b *batch) uint64 {
	d := deepDigester{seen: make(map[uintptr]bool)}
	d.hash.SetSeed(digestSeed)
	for _, x := range []any{s.dispatch.sched, s.timers.h, b.entry.Items(), b.entry.Size(), b.view.Entries(), len(b.out)} {
		d.add(reflect.ValueOf(x))
	}
	return d.hash.Sum64()
}

var (
	digestSeed   = maphash.MakeSeed()
	locationType = reflect.TypeFor[*time.Location]()
)

// A deepDigester hashes values with all that they point to. Objects do not move, so pointers are
// equal before and after.
type deepDigester struct {
	hash maphash.Hash
	seen map[uintptr]bool
}

// cached are fields that are computed from others when they are read first.
var cached = map[string]bool{
	"Scheduler.offers": true, "shape.eligible": true, "shape.version": true, "shape.preferred": true, "shape.homes": true, "affinity.worker": true, "affinity.epoch": true,
}

func (d *deepDigester) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		d.number(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.number(uint64(v.Int())) //nolint:gosec // a bit pattern
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		d.number(v.Uint())
	case reflect.String:
		d.number(uint64(v.Len())) //nolint:gosec // not negative
		_, _ = d.hash.WriteString(v.String())
	case reflect.Pointer:
		p := v.Pointer()
		// Locations do not change, except that package time fills in its own at their first use.
		if d.number(uint64(p)); p != 0 && !d.seen[p] && v.Type() != locationType {
			d.seen[p] = true
			d.add(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			d.add(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		d.number(uint64(v.Len())) //nolint:gosec // not negative
		for i := range v.Len() {
			d.add(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !cached[v.Type().Name()+"."+v.Type().Field(i).Name] {
				d.add(v.Field(i))
			}
		}
	case reflect.Map:
		d.addMap(v)
	}
}

// addMap adds the entries of a map in the order of the digests of their keys.
func (d *deepDigester) addMap(v reflect.Value) {
	type entry struct {
		key uint64
		at  reflect.Value
	}
	var list []entry
	for k, x := range v.Seq2() { // unordered: sorted below
		key := deepDigester{seen: make(map[uintptr]bool)}
		key.hash.SetSeed(digestSeed)
		key.add(k)
		list = append(list, entry{key.hash.Sum64(), x})
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	for _, e := range list {
		d.number(e.key)
		d.add(e.at)
	}
}

func (d *deepDigester) number(n uint64) { maphash.WriteComparable(&d.hash, n) }
