package api

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// spec reads the parts of a job.
func (r *replica) spec(t *testing.T, req *dtaskv1.GetJobSpecRequest) (parts []*dtaskv1.JobPart, err error) {
	t.Helper()
	stream, err := r.jobs.GetJobSpec(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return parts, nil
		} else if err != nil {
			return nil, err
		}
		if first := len(parts) == 0; first != (m.GetFreshness().GetAppliedIndex() > 0) {
			t.Errorf("part %d: got freshness %v", len(parts), m.GetFreshness())
		}
		if size := proto.Size(m); size > maxPageBytes {
			t.Errorf("part %d has %d bytes", len(parts), size)
		}
		parts = append(parts, m.GetPart())
	}
}

// digest returns the digest of a job.
func (r *replica) digest(t *testing.T, id fsm.JobID) (digest [16]byte) {
	t.Helper()
	r.machine.Read(func(st *fsm.State, _ uint64) {
		job, ok := st.Job(id)
		if !ok {
			t.Fatalf("job %d is missing", id)
		}
		digest = job.Digest
	})
	return digest
}

// submitSpec submits the parts of a job again, each in a message of its own, and checks
// that the new job equals the first.
func (r *replica) submitSpec(t *testing.T, id fsm.JobID, digest [16]byte) {
	t.Helper()
	parts, err := r.spec(t, &dtaskv1.GetJobSpecRequest{Job: formatJobID(id)})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range parts {
		if more := i < len(parts)-1; p.GetMore() != more || (p.GetHeader() != nil) != (i == 0) {
			t.Errorf("part %d of %d: more = %t, header %v", i, len(parts), p.GetMore(), p.GetHeader())
		}
	}
	parts[0].IdempotencyKey = "again"
	stored, err := r.send(t.Context(), parts...)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := parseJobID(stored.GetId())
	if stored.GetExisted() || r.digest(t, again) != digest {
		t.Errorf("job %s differs from job %d", stored.GetId(), id)
	}
}

// variedJob has listed tasks of several parts around arrays with indexes and items.
func variedJob(tasks int) []*dtaskv1.JobPart {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	h := variedHeader()
	h.Env, h.Labels = map[string]string{"A": "1", "B": "2"}, map[string]string{"team": "data", "tier": "x"}
	whole := request("k", h)
	for i := range tasks {
		whole.Tasks = append(whole.Tasks, randomTask(random, uint32(i), false)) //nolint:gosec // a few
	}
	items := &dtaskv1.ArraySpec{ItemsTotal: 4001, Chunk: 2}
	for i := range items.GetItemsTotal() {
		items.Items = append(items.Items, fmt.Appendf(nil, `{"n": %d, "pad": "%0200d"}`, i, i))
	}
	ranges := &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{First: 3, Last: 9, Step: 3}, {First: 20, Last: 20, Step: 1}}, MaxParallel: 2}
	body := func() *dtaskv1.TaskBody { return &dtaskv1.TaskBody{Payload: []byte("${{ index }}")} }
	first, n := uint32(tasks), uint32(tasks) //nolint:gosec // a few
	whole.Tasks = append(whole.Tasks, &dtaskv1.TaskSpec{Id: "each", Array: items, Body: body(), Dependencies: []uint32{0}})
	n += 2001
	whole.Tasks = append(whole.Tasks, &dtaskv1.TaskSpec{Id: "some", Array: ranges, Body: body()})
	n += 4
	whole.Tasks = append(whole.Tasks, task("after", first))
	whole.Total = n + 1
	var parts []*dtaskv1.JobPart
	for list := range slices.Chunk(whole.GetTasks(), tasks/4) {
		parts = append(parts, &dtaskv1.JobPart{Tasks: list})
	}
	whole.Tasks, parts[0] = parts[0].GetTasks(), whole
	return parts
}

func TestAStoredJobCanBeSubmittedAgainInTheSameForm(t *testing.T) {
	t.Parallel()
	for name, job := range map[string][]*dtaskv1.JobPart{
		"one part":                {request("k", header("x"), diamond()...)},
		"listed tasks and arrays": variedJob(20_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			stored, err := r.send(t.Context(), inColumns(t, job...)...)
			if err != nil {
				t.Fatal(err)
			}
			id, _ := parseJobID(stored.GetId())
			r.submitSpec(t, id, r.digest(t, id))
		})
	}
}

func TestAnArchivedJobCanBeSubmittedAgain(t *testing.T) {
	t.Parallel()
	_, change := withHistory(t, false, Summarize)
	r := setup(t, change)
	h := header("done")
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	digest := r.digest(t, 1)
	r.complete(t, held(1, 0, 1, r.worker(t)), "done")
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1}})
	r.submitSpec(t, 1, digest)
}

func TestUpdatesAreNotPartOfTheSubmittedForm(t *testing.T) {
	t.Parallel()
	r := setup(t)
	id := r.submit(t, "x", task("a"))
	digest := r.digest(t, id)
	_, err := r.jobs.Update(t.Context(), &dtaskv1.UpdateRequest{Job: "1", Task: "a", Payload: []byte("new"), Priority: dtaskv1.Priority_PRIORITY_URGENT, IdempotencyKey: "u"})
	if err != nil {
		t.Fatal(err)
	}
	r.submitSpec(t, id, digest)
}

func TestAFollowerReturnsAJobSpecOnlyToStaleReads(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	_, err := r.spec(t, &dtaskv1.GetJobSpecRequest{Job: "7"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	_, err = r.spec(t, &dtaskv1.GetJobSpecRequest{Job: "x"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	r.leading(false)
	if _, err = r.spec(t, &dtaskv1.GetJobSpecRequest{Job: "1"}); err == nil {
		t.Error("a follower answered a linearizable read")
	}
	if _, err = r.spec(t, &dtaskv1.GetJobSpecRequest{Job: "1", Consistency: dtaskv1.Consistency_CONSISTENCY_STALE}); err != nil {
		t.Errorf("a stale read failed: %v", err)
	}
}
