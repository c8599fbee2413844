package fsm

import (
	"fmt"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
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

// BenchmarkJobsThatWait reads 10,000 jobs as a listing does: without a concurrency key, and
// with as many jobs of each key as may wait and run. Each of these names those before it.
func BenchmarkJobsThatWait(b *testing.B) {
	const total = 10_000
	for name, limit := range map[string]uint32{"without_key": 0, "key_of_100": 1, "key_of_1099": 1000} {
		b.Run(name, func(b *testing.B) {
			s := New()
			s.level.current = MaxLevel
			for id := JobID(1); id <= total; id++ {
				p := plan(nil)
				if limit > 0 {
					key := fmt.Sprintf("key-%d", int(id-1)/int(limit+maxWaitingJobs))
					p = gatedAt(p, jobTimes{shared: &dtaskv1.JobConcurrency{Key: key, Limit: limit, Overlap: dtaskv1.ScheduleOverlap(OverlapWaitAll)}})
				}
				ops := p.submit(id, fmt.Sprint("job ", id), 1)
				if limit > 0 {
					ops = submitGated(id, fmt.Sprint("job ", id), p)
				}
				if limit > 0 && uint32(id-1)%(limit+maxWaitingJobs) < limit {
					ops = append(ops, &OpenGate{Job: id})
				}
				if r := s.Apply(Entry{NowMS: 1000, Ops: ops}, nil); r != Accepted {
					b.Fatal(r)
				}
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for job := range s.Jobs(0) {
					n += len(job.WaitsFor)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/total, "ns/job")
			b.ReportMetric(float64(n)/float64(b.N)/total, "named/job")
		})
	}
}
