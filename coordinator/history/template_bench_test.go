package history

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// benchSchedule sets a schedule of tasks with 1,000 bytes each.
func benchSchedule(tb testing.TB, st *fsm.State, tasks int) fsm.ScheduleID {
	tb.Helper()
	header, err := proto.Marshal(&dtaskv1.JobHeader{Name: "nightly", Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000}}})
	if err != nil {
		tb.Fatal(err)
	}
	id, b := st.NextJob(), fsm.NewChunkBuilder(0)
	for k := range tasks {
		b.Add(fmt.Sprintf("task-%d", k), 0, nil, make([]byte, 1000))
	}
	c := b.Chunk()
	if r := st.Apply(fsm.Entry{NowMS: 1, Ops: []fsm.Op{
		&fsm.SetLevel{Level: fsm.MaxLevel}, &fsm.BeginUpload{ID: id, Key: "set", Header: header, Total: uint32(tasks)}, &fsm.AddChunk{Job: id, Chunk: c},
		&fsm.SetSchedule{
			Upload: id, Sum: c.Sum(0), Recurrence: fsm.Recurrence{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin", Ordered: true},
			ScheduleRules: fsm.ScheduleRules{Overlap: fsm.OverlapAllow, Missed: fsm.MissedOne, WithinMS: 1000}, By: "alice", AtMS: 1,
		},
	}}, nil); r != fsm.Accepted {
		tb.Fatal(r)
	}
	return st.ScheduleByName("", "nightly").ID
}

// archivedRun returns an archived run of a schedule.
func archivedRun(tb testing.TB, st *fsm.State, x fsm.ScheduleID, tasks int) *fsm.ArchiveBatch {
	tb.Helper()
	id, fx := st.NextJob(), &fsm.Effects{Archived: new(fsm.ArchiveBatch)}
	tick := int64(id) * 1_000_000
	assign, done := new(fsm.Assign), new(fsm.Complete)
	for k := range tasks {
		h := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id, Index: uint32(k)}, Attempt: 1}, Worker: 1}
		assign.Items = append(assign.Items, fsm.AssignItem(h))
		done.Items = append(done.Items, fsm.CompleteItem{HeldAttempt: h, DurationMS: 5, Result: []byte("fine")})
	}
	fire := &fsm.Fire{Schedule: x, Version: 1, TickMS: tick, Civil: tick / 1000, Decision: fsm.TickRuns}
	if r := st.Apply(fsm.Entry{NowMS: tick, Ops: []fsm.Op{fire, assign, done, &fsm.Archive{Items: []fsm.JobID{id}}}}, fx); r != fsm.Accepted {
		tb.Fatal(r)
	}
	return fx.Archived
}

// BenchmarkArchiveRuns measures the cost of writing the runs of a schedule: CPU time, and
// bytes on disk.
func BenchmarkArchiveRuns(b *testing.B) {
	const runs = 100
	for _, tasks := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			var used time.Duration
			var size int64
			for b.Loop() {
				h, st := benchHistory(b), benchState()
				x := benchSchedule(b, st, tasks)
				for i := range uint64(runs) {
					left := archivedRun(b, st, x, tasks)
					start := cpu(b)
					h.Take(i+1, left)
					if err := h.Sync(b.Context(), i+1); err != nil {
						b.Fatal(err)
					}
					used += cpu(b) - start
				}
				size = h.Stats().FileBytes
			}
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*runs)/1000, "cpu-ms/run")
			b.ReportMetric(float64(size)/runs/1000, "disk-KB/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}
