package api

import (
	"testing"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// fuzzed is a server without a leader.
func fuzzed() *Server {
	s := &Server{cfg: Config{Machine: fsm.NewMachine(), Leader: func() Leader { return nil }}}
	s.cfg.Defaults()
	s.uploads, s.limit = semaphore.NewWeighted(s.cfg.UploadBytes), newRateLimits(0, 0)
	return s
}

func seed(f *testing.F, messages ...proto.Message) {
	f.Helper()
	for _, m := range messages {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzSubmitRequest accepts no job that the rules of package spec reject.
func FuzzSubmitRequest(f *testing.F) {
	policy := &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 1000, Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE, Retry: &dtaskv1.RetryPolicy{Max: 3, InitialMs: 100, MultiplierPermille: 2000, MaxDelayMs: 1000}}
	header := &dtaskv1.JobHeader{Name: "j", Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP, Policies: []*dtaskv1.TaskPolicy{policy}}
	tasks := []*dtaskv1.TaskSpec{{Id: "a", Body: &dtaskv1.TaskBody{Payload: []byte("p")}}, {Id: "b", Dependencies: []uint32{0}, Body: &dtaskv1.TaskBody{}}}
	seed(f,
		&dtaskv1.JobPart{IdempotencyKey: "k", Total: 2, Header: header, Tasks: tasks},
		&dtaskv1.JobPart{IdempotencyKey: "k", Total: 1, Header: header, Tasks: tasks},
		&dtaskv1.JobPart{IdempotencyKey: "k", Total: 1, Header: &dtaskv1.JobHeader{}},
		&dtaskv1.JobPart{},
	)
	server := fuzzed()
	f.Fuzz(func(t *testing.T, b []byte) {
		var m dtaskv1.JobPart
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		u := &upload{Server: server, caller: open}
		if u.add(&m) != nil {
			return
		}
		sealed, err := u.seal()
		if err != nil {
			return
		}
		if sealed.Total != m.GetTotal() || sealed.Key != m.GetIdempotencyKey() || len(m.GetTasks()) != int(m.GetTotal()) {
			t.Errorf("got %d tasks under %q, want %d under %q", sealed.Total, sealed.Key, len(m.GetTasks()), m.GetIdempotencyKey())
		}
		job := &dtaskv1.JobSpec{Header: m.GetHeader(), Tasks: m.GetTasks()}
		if faults := spec.Check(job); faults != nil {
			t.Errorf("accepted a job that the rules reject: %v", faults)
		}
	})
}

// FuzzUpdateRequest accepts no update that is out of range.
func FuzzUpdateRequest(f *testing.F) {
	seed(f,
		&dtaskv1.UpdateRequest{IdempotencyKey: "k", Job: "1", Priority: dtaskv1.Priority_PRIORITY_HIGH},
		&dtaskv1.UpdateRequest{IdempotencyKey: "k", Job: "1", Task: "t", Payload: []byte("p"), DelayMs: proto.Int64(5)},
		&dtaskv1.UpdateRequest{IdempotencyKey: "k", NotBefore: proto.Int64(-1)},
		&dtaskv1.UpdateRequest{IdempotencyKey: "k", TimeoutMs: -1, MaxRetries: proto.Uint32(1 << 31)},
	)
	j := &jobs{Server: fuzzed()}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r dtaskv1.UpdateRequest
		if proto.Unmarshal(b, &r) != nil || j.checkUpdate(&r) != nil {
			return
		}
		if r.GetTimeoutMs() < 0 || r.GetNotBefore() < 0 || r.GetDelayMs() < 0 || r.GetMaxRetries() > maxRetries || len(r.GetPayload()) > j.cfg.MaxPayload {
			t.Errorf("accepted an invalid update: %v", &r)
		}
		first, err := precondition(&r)
		r.IdempotencyKey += "x"
		if second, again := precondition(&r); err != nil || again != nil || first.Digest != second.Digest {
			t.Errorf("the digest of an update depends on its key: %v, %v", err, again)
		}
	})
}
