package history

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var benchJobs = flag.Int("jobs", 100_000, "jobs in the history of BenchmarkList")

// cpu is the processor time of this process so far.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// archivedJobs makes n jobs that have left the state, each of a number of tasks. It goes
// through the state machine and keeps no log.
func archivedJobs(tb testing.TB, st *fsm.State, first, n, tasks int) *fsm.Leaving {
	tb.Helper()
	fx := &fsm.Effects{Leaving: new(fsm.Leaving)}
	for i := first; i < first+n; i++ {
		header, err := proto.Marshal(&dtaskv1.JobHeader{
			Name: fmt.Sprintf("job-%d", i%1000), Owner: fmt.Sprintf("owner-%d", i%20), Labels: map[string]string{"run": fmt.Sprint(i), "team": fmt.Sprint(i % 10)},
			Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000}},
		})
		if err != nil {
			tb.Fatal(err)
		}
		id := st.NextJob()
		ops := []fsm.Op{&fsm.JobBegin{ID: id, Key: fmt.Sprintf("key-%d", id), Header: header, Total: uint32(tasks)}}
		sum := uint32(0)
		for at := 0; at < tasks; at += 1000 {
			b := fsm.NewChunkBuilder(uint32(at))
			for k := at; k < min(at+1000, tasks); k++ {
				b.Add(fmt.Sprintf("task-%d", k), 0, nil, make([]byte, 32))
			}
			c := b.Chunk()
			sum = c.Sum(sum)
			ops = append(ops, &fsm.JobChunk{Job: id, Chunk: c})
		}
		assign, done, failed := new(fsm.Assign), new(fsm.Complete), new(fsm.Fail)
		for k := range tasks {
			h := fsm.HeldItem{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id, Index: uint32(k)}, Attempt: 1}, Worker: 1}
			assign.Items = append(assign.Items, fsm.AssignItem(h))
			done.Items = append(done.Items, fsm.CompleteItem{HeldItem: h, DurationMS: 5, Result: []byte("fine")})
			failed.Items = append(failed.Items, fsm.FailItem{HeldItem: h, Next: fsm.ToFailed, Error: "exit 1"})
		}
		ops = append(ops, &fsm.JobSeal{Job: id, Sum: sum}, assign)
		if i%1000 == 999 {
			ops = append(ops, failed)
		} else {
			ops = append(ops, done)
		}
		ops = append(ops, &fsm.Archive{IDs: []fsm.JobID{id}}, &fsm.ForgetKeys{Keys: []string{fmt.Sprintf("key-%d", id)}})
		if r := st.Apply(fsm.Entry{NowMS: 1_700_000_000_000 + int64(i), Ops: ops}, fx); r != fsm.Accepted {
			tb.Fatal(r)
		}
	}
	return fx.Leaving
}

func benchState() *fsm.State {
	st := fsm.New()
	st.Apply(fsm.Entry{Ops: []fsm.Op{&fsm.WorkerJoin{ID: 1, Name: "w1", Incarnation: "i", Slots: 1}}}, nil)
	return st
}

func benchHistory(b *testing.B) *History {
	b.Helper()
	h, err := Open(Config{Path: filepath.Join(b.TempDir(), "history.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return h
}

// What it costs to write jobs: processor time of all that Take, the writer and bbolt do, and
// bytes on disk.
func BenchmarkArchive(b *testing.B) {
	for _, shape := range []struct{ jobs, tasks int }{{100_000, 1}, {50_000, 10}, {1, 1_000_000}} {
		b.Run(fmt.Sprintf("tasks=%d", shape.tasks), func(b *testing.B) {
			var used time.Duration
			var jobs, size uint64
			for b.Loop() {
				h, st := benchHistory(b), benchState()
				index := uint64(0)
				for made := 0; made < shape.jobs; made += 5000 {
					left := archivedJobs(b, st, made, min(5000, shape.jobs-made), shape.tasks)
					index++
					began := cpu(b)
					h.Take(index, left)
					if err := h.Sync(b.Context(), index); err != nil {
						b.Fatal(err)
					}
					used += cpu(b) - began
				}
				jobs += uint64(shape.jobs)
				size = uint64(h.Stats().FileBytes)
			}
			b.ReportMetric(float64(used.Nanoseconds())/float64(jobs)/1000, "cpu-µs/job")
			b.ReportMetric(float64(used.Nanoseconds())/float64(jobs)/float64(shape.tasks), "cpu-ns/task")
			b.ReportMetric(float64(size)/float64(shape.jobs), "disk-bytes/job")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// How long a page of a listing takes; -jobs says how many there are.
func BenchmarkList(b *testing.B) {
	h, st := benchHistory(b), benchState()
	index := uint64(0)
	for made := 0; made < *benchJobs; made += 5000 {
		index++
		h.Take(index, archivedJobs(b, st, made, 5000, 1))
		if err := h.Sync(b.Context(), index); err != nil {
			b.Fatal(err)
		}
	}
	b.Logf("%d jobs, %d bytes each on disk", *benchJobs, uint64(h.Stats().FileBytes)/h.Stats().Jobs)
	for name, q := range map[string]Query{
		"all":             {},
		"name":            {Name: "job-7"},
		"no-such-name":    {Name: "nobody"},
		"one-label":       {Labels: map[string]string{"run": "77"}},
		"failed":          {States: []fsm.JobState{fsm.JobFailed}},
		"owner+team":      {Owner: "owner-3", Labels: map[string]string{"team": "3"}},
		"name+label+fail": {Name: "job-999", Labels: map[string]string{"team": "9"}, States: []fsm.JobState{fsm.JobFailed}},
		"never-together":  {Owner: "owner-3", Labels: map[string]string{"team": "4"}},
	} {
		b.Run(fmt.Sprintf("jobs=%d/%s", *benchJobs, name), func(b *testing.B) {
			found := 0
			for b.Loop() {
				found = 0
				if _, err := h.List(b.Context(), q, func(fsm.Head) bool { found++; return found < 100 }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(found), "found")
		})
	}
}
