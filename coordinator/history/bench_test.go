package history

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var (
	benchJobs = flag.Int("jobs", 100_000, "jobs in the history of BenchmarkList and BenchmarkRetention")
	benchFile = flag.String("history", "", "`FILE` with that history; created if missing, and kept")
)

// cpu returns the CPU time of this process.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// archivedJobs returns n archived jobs with a number of tasks each. It uses the state
// machine without a log.
func archivedJobs(tb testing.TB, st *fsm.State, first, n, tasks int) *fsm.ArchiveBatch {
	tb.Helper()
	fx := &fsm.Effects{Archived: new(fsm.ArchiveBatch)}
	for i := first; i < first+n; i++ {
		header, err := proto.Marshal(&dtaskv1.JobHeader{
			Name: fmt.Sprintf("job-%d", i%1000), Owner: fmt.Sprintf("owner-%d", i%20), Labels: map[string]string{"run": fmt.Sprint(i), "team": fmt.Sprint(i % 10)},
			Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000}},
		})
		if err != nil {
			tb.Fatal(err)
		}
		id := st.NextJob()
		ops := []fsm.Op{&fsm.BeginUpload{ID: id, Key: fmt.Sprintf("key-%d", id), Header: header, Total: uint32(tasks)}}
		sum := uint32(0)
		for at := 0; at < tasks; at += 1000 {
			b := fsm.NewChunkBuilder(uint32(at))
			for k := at; k < min(at+1000, tasks); k++ {
				b.Add(fmt.Sprintf("task-%d", k), 0, nil, make([]byte, 32))
			}
			c := b.Chunk()
			sum = c.Sum(sum)
			ops = append(ops, &fsm.AddChunk{Job: id, Chunk: c})
		}
		assign, done, failed := new(fsm.Assign), new(fsm.Complete), new(fsm.Fail)
		for k := range tasks {
			h := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id, Index: uint32(k)}, Attempt: 1}, Worker: 1}
			assign.Items = append(assign.Items, fsm.AssignItem(h))
			done.Items = append(done.Items, fsm.CompleteItem{HeldAttempt: h, DurationMS: 5, Result: []byte("fine")})
			failed.Items = append(failed.Items, fsm.FailItem{HeldAttempt: h, Next: fsm.NextFailed, Error: "exit 1"})
		}
		ops = append(ops, &fsm.SealUpload{Job: id, Sum: sum}, assign)
		if i%1000 == 999 {
			ops = append(ops, failed)
		} else {
			ops = append(ops, done)
		}
		ops = append(ops, &fsm.Archive{Items: []fsm.JobID{id}}, &fsm.ForgetKeys{Items: []string{fmt.Sprintf("key-%d", id)}})
		if r := st.Apply(fsm.Entry{NowMS: 1_700_000_000_000 + int64(i), Ops: ops}, fx); r != fsm.Accepted {
			tb.Fatal(r)
		}
	}
	return fx.Archived
}

func benchState() *fsm.State {
	st := fsm.New()
	st.Apply(fsm.Entry{Ops: []fsm.Op{&fsm.RegisterWorker{ID: 1, Name: "w1", Incarnation: "i", Slots: 1}}}, nil)
	return st
}

func benchHistory(b *testing.B) *History {
	b.Helper()
	return benchHistoryAt(b, filepath.Join(b.TempDir(), "history.db"))
}

func benchHistoryAt(b *testing.B, path string) *History {
	b.Helper()
	h, err := Open(Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
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

// BenchmarkArchive measures the cost of writing jobs: CPU time of Take, the writer and
// bbolt, and bytes on disk.
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
					start := cpu(b)
					h.Take(index, left)
					if err := h.Sync(b.Context(), index); err != nil {
						b.Fatal(err)
					}
					used += cpu(b) - start
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

// longHistory returns a history of -jobs jobs.
func longHistory(b *testing.B) *History {
	b.Helper()
	path := *benchFile
	if path == "" {
		path = filepath.Join(b.TempDir(), "history.db")
	}
	h, st := benchHistoryAt(b, path), benchState()
	used, since := time.Duration(0), 0
	for made := 0; made < *benchJobs && h.Stats().CompleteTo < uint64(*benchJobs/5000); made += 5000 {
		left, start := archivedJobs(b, st, made, 5000, 1), cpu(b)
		index := uint64(1 + made/5000)
		h.Take(index, left)
		if err := h.Sync(b.Context(), index); err != nil {
			b.Fatal(err)
		}
		used += cpu(b) - start
		if since += 5000; since == 1_000_000 {
			b.Logf("%d jobs, the last million in %v of CPU each", made+5000, used/1_000_000)
			used, since = 0, 0
		}
	}
	if h.Stats().CompleteTo > uint64(*benchJobs/5000) {
		b.Fatalf("%s has more jobs", path)
	}
	b.Logf("%d jobs, %d bytes each on disk, %s", h.Stats().Jobs, uint64(h.Stats().FileBytes)/h.Stats().Jobs, memory(b))
	return h
}

// BenchmarkList measures a page of a listing in a long history, and reading one job.
func BenchmarkList(b *testing.B) {
	h := longHistory(b)
	const first = 1_700_000_000_000 // one job per millisecond
	middle := first + int64(*benchJobs)/2
	for _, c := range []struct {
		name string
		q    Query
	}{
		{"all", Query{}},
		{"last-page", Query{Below: 101}},
		{"name", Query{Name: "job-7"}},
		{"no-such-name", Query{Name: "nobody"}},
		{"one-label", Query{Labels: map[string]string{"run": "77"}}},
		{"completed+one-label", Query{Labels: map[string]string{"run": "77"}, States: []fsm.JobState{fsm.JobCompleted}}},
		{"completed", Query{States: []fsm.JobState{fsm.JobCompleted}}},
		{"failed", Query{States: []fsm.JobState{fsm.JobFailed}}},
		{"owner+team", Query{Owner: "owner-3", Labels: map[string]string{"team": "3"}}},
		{"owner+team/last-page", Query{Owner: "owner-3", Labels: map[string]string{"team": "3"}, Below: 2001}},
		{"name+label+fail", Query{Name: "job-999", Labels: map[string]string{"team": "9"}, States: []fsm.JobState{fsm.JobFailed}}},
		{"never/name+fail", Query{Name: "job-7", States: []fsm.JobState{fsm.JobFailed}}},
		{"never/owner+team", Query{Owner: "owner-3", Labels: map[string]string{"team": "4"}}},
		{"never/owner+team+completed", Query{Owner: "owner-3", Labels: map[string]string{"team": "4"}, States: []fsm.JobState{fsm.JobCompleted}}},
		{"time", Query{Since: middle - 50, Before: middle + 50}},
		{"time/oldest", Query{Before: first + 100}},
		{"time/none", Query{Since: first + int64(*benchJobs)}},
		{"time+failed", Query{Since: middle - 50_000, Before: middle, States: []fsm.JobState{fsm.JobFailed}}},
		{"time+owner+team+completed", Query{Since: middle - 50_000, Before: middle, Owner: "owner-3", Labels: map[string]string{"team": "3"}, States: []fsm.JobState{fsm.JobCompleted}}},
		{"time/oldest+completed", Query{Before: first + 200, States: []fsm.JobState{fsm.JobCompleted}}},
	} {
		b.Run(fmt.Sprintf("jobs=%d/%s", *benchJobs, c.name), func(b *testing.B) {
			found, calls, longest := 0, 0, time.Duration(0)
			for b.Loop() {
				found, calls = 0, 0
				for q := c.q; ; {
					start := time.Now()
					rest, err := h.List(b.Context(), q, func(fsm.Head) bool { found++; return found < 100 })
					if err != nil {
						b.Fatal(err)
					}
					longest = max(longest, time.Since(start))
					if calls++; rest == 0 {
						break
					}
					q.Below = rest
				}
			}
			b.ReportMetric(float64(found), "found")
			b.ReportMetric(float64(calls), "calls")
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
	b.Run(fmt.Sprintf("jobs=%d/status", *benchJobs), func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			id := fsm.JobID(1 + i*7919%*benchJobs)
			if _, ok, err := h.Find(id); !ok || err != nil {
				b.Fatal(id, ok, err)
			}
		}
	})
	b.Log(memory(b))
}

// BenchmarkRetention measures the cost of dropping a job from a long history.
func BenchmarkRetention(b *testing.B) {
	h := longHistory(b)
	const many = 10_000
	start, gone := cpu(b), 0
	for b.Loop() {
		if err := h.inWriter(b.Context(), func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.cfg.MaxJobs = max(h.meta.jobs, many) - many
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		if err := h.await(b.Context(), func() bool { return h.meta.jobs <= h.cfg.MaxJobs }); err != nil {
			b.Fatal(err)
		}
		gone += many
	}
	b.ReportMetric(float64((cpu(b)-start).Microseconds())/float64(gone), "cpu-µs/job")
	b.Log(memory(b))
}

// memory describes the memory of this process.
func memory(b *testing.B) string {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "memory unknown"
	}
	var parts []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "RssAnon") || strings.HasPrefix(line, "RssFile") {
			parts = append(parts, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(parts, ", ")
}
