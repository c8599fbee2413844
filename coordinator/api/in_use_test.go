package api

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// inUse is a replica whose queue etl and limit tenant/* are used by the number of jobs, and by a
// schedule.
func inUse(t *testing.T, jobs int) *replica {
	t.Helper()
	r := setupSchedules(t)
	admin := as(t.Context(), "admin")
	if _, err := r.queues.SetQueue(admin, &dtaskv1.SetQueueRequest{Name: "etl", Settings: &dtaskv1.QueueSettings{Weight: 3}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.limits.SetLimit(admin, &dtaskv1.SetLimitRequest{Name: "tenant/*", Settings: &dtaskv1.LimitSettings{Running: 1}}); err != nil {
		t.Fatal(err)
	}
	users := func(h *dtaskv1.JobHeader) {
		h.Queue, h.Policies = "etl", []*dtaskv1.TaskPolicy{using("tenant/acme")}
	}
	x := everyTenMinutes("nightly", "")
	users(x.GetPart().GetHeader())
	r.mustSet(t, "submitter", x)
	for i := range jobs {
		h := header("x")
		users(h)
		if _, err := r.send(as(t.Context(), "submitter"), request(fmt.Sprint(i), h, task("a"))); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestWhatKeepsAQueueOrALimitFromBeingDeletedIsNamed(t *testing.T) {
	t.Parallel()
	const byNightly = `schedules ("nightly" in namespace "etl"): `
	for _, c := range []struct {
		jobs         int
		by           string
		queue, limit string
	}{
		{0, byNightly, "set the schedules again without it, or delete them", "set the schedules again without it, or delete them"},
		{
			2, "jobs that have not ended (3, 2) and by " + byNightly,
			"move the jobs, or wait for their end; set the schedules again without it, or delete them",
			"wait for the end of the jobs; set the schedules again without it, or delete them",
		},
		{
			12, "jobs that have not ended (13, 12, 11, 10, 9, 8, 7, 6, 5, 4 and 2 more) and by " + byNightly,
			"move the jobs, or wait for their end; set the schedules again without it, or delete them",
			"wait for the end of the jobs; set the schedules again without it, or delete them",
		},
	} {
		r := inUse(t, c.jobs)
		ctx := as(t.Context(), "admin")
		_, queue := r.queues.DeleteQueue(ctx, &dtaskv1.DeleteQueueRequest{Name: "etl"})
		_, limit := r.limits.DeleteLimit(ctx, &dtaskv1.DeleteLimitRequest{Name: "tenant/*"})
		for _, x := range []struct {
			err  error
			want string
		}{{queue, `queue "etl" is named by ` + c.by + c.queue}, {limit, `limit "tenant/*" is used by ` + c.by + c.limit}} {
			wantError(t, x.err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
			if got := status.Convert(x.err).Message(); got != x.want {
				t.Errorf("got %q, want %q", got, x.want)
			}
		}
	}
}

func TestAnEndedJobKeepsNoQueueFromBeingDeleted(t *testing.T) {
	t.Parallel()
	r := inUse(t, 1)
	admin := as(t.Context(), "admin")
	if _, err := r.schedules.DeleteSchedule(as(t.Context(), "submitter"), &dtaskv1.DeleteScheduleRequest{Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.queues.DeleteQueue(admin, &dtaskv1.DeleteQueueRequest{Name: "etl"})
	wantConflict(t, err, codes.FailedPrecondition, `queue "etl" is named by jobs that have not ended (2): move the jobs, or wait for their end`)
	if _, err := r.jobs.Cancel(admin, &dtaskv1.CancelRequest{Job: "2"}); err != nil {
		t.Fatal(err)
	}
	var open bool
	r.machine.Read(func(st *fsm.State, _ uint64) {
		job, _ := st.Job(2)
		open = !job.State.Terminal()
	})
	if _, err := r.queues.DeleteQueue(admin, &dtaskv1.DeleteQueueRequest{Name: "etl"}); err != nil || open {
		t.Errorf("got %v; the job is open: %v", err, open)
	}
}
