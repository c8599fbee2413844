package fsm

import (
	"fmt"
	"testing"
)

// Jobs of ten tasks, as many in an entry as arrive together under load.
const (
	smallTasks = 10
	smallJobs  = 100
)

// smallLog returns a log of small jobs from their submission to their end, two
// entries per batch.
func smallLog(lots int) []Entry {
	p := plan(make([][]uint32, smallTasks)...)
	id := JobID(0)
	var log []Entry
	for range lots {
		var submit, end []Op
		give, complete := new(Assign), new(Complete)
		for range smallJobs {
			id++
			submit = append(submit, p.submit(id, fmt.Sprintf("key-%d", id), smallTasks)...)
			for i := range uint32(smallTasks) {
				give.Items = append(give.Items, AssignItem(hold(id, i, 1, 1)))
				complete.Items = append(complete.Items, CompleteItem{HeldAttempt: hold(id, i, 1, 1), DurationMS: 1})
			}
		}
		end = append(end, complete)
		log = append(log, Entry{Ops: append(submit, give)}, Entry{Ops: end})
	}
	return log
}

// BenchmarkSmallJobs measures what a replica does for jobs of ten tasks, from
// their submission to their end; and the same with a fork after each entry, so
// that every written page must be copied first.
func BenchmarkSmallJobs(b *testing.B) {
	const lots = 20
	log := smallLog(lots)
	for _, looked := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "looked_at"}[looked], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := New()
				s.Apply(Entry{Ops: []Op{worker(1)}}, nil)
				for _, e := range log {
					if r := s.Apply(e, nil); r != Accepted {
						b.Fatal(r)
					}
					if looked {
						_ = s.Fork()
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/lots/smallJobs, "µs/job")
		})
	}
}
