package api

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// BenchmarkSmallJobs checks and encodes jobs of ten tasks that arrived in one
// message, each with the header of the first.
func BenchmarkSmallJobs(b *testing.B) {
	const n = 100
	h := header("x")
	h.Labels = map[string]string{"k": "v"}
	var tasks []*dtaskv1.TaskSpec
	for i := range 10 {
		t := task(fmt.Sprint("bench-", i))
		t.Body = &dtaskv1.TaskBody{Payload: make([]byte, 32)}
		tasks = append(tasks, t)
	}
	call := &dtaskv1.SubmitRequest{}
	for i := range n {
		call.Parts = append(call.Parts, inColumns(b, request(fmt.Sprint("k", i), h, tasks...))...)
		if i > 0 {
			call.Parts[i].Header = nil
		}
	}
	sent, err := proto.Marshal(call)
	if err != nil {
		b.Fatal(err)
	}
	j := &jobs{Server: bystander(b, fsm.NewMachine())}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		m := &dtaskv1.SubmitRequest{}
		if err := proto.Unmarshal(sent, m); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		one := &upload{Server: j.Server, caller: open}
		for _, p := range m.GetParts() {
			one.started = false
			if err := one.add(p); err != nil {
				b.Fatal(err)
			}
			if _, err := one.seal(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/job")
}

// BenchmarkJobView shows a stored job, as GetJob and each row of ListJobs do.
func BenchmarkJobView(b *testing.B) {
	h := header("nightly")
	h.Owner, h.MaxFailures, h.Labels = "data-team", 3, map[string]string{"team": "data", "env": "prod", "week": "12"}
	v := jobView{job: fsm.Job{ID: 1, Header: h, State: fsm.JobCompleted, Total: 10, Counts: [...]uint32{fsm.Completed: 10, fsm.Lost: 0}}}
	b.ReportAllocs()
	for b.Loop() {
		v.show(1)
	}
}
