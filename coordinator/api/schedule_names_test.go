package api

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheScheduleOfTheNamespaceThatWasProbablyMeantIsNamed(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	r.mustSet(t, "ml", everyTenMinutes("train", ""))
	ctx := as(t.Context(), "submitter")
	for name, want := range map[string]string{
		"nighty": `schedule "nighty" not found in the namespace "etl"; did you mean "nightly"?`,
		"trains": `schedule "trains" not found in the namespace "etl"`,
	} {
		_, show := r.schedules.GetSchedule(ctx, &dtaskv1.GetScheduleRequest{Name: name})
		_, run := r.schedules.RunSchedule(ctx, &dtaskv1.RunScheduleRequest{Name: name, IdempotencyKey: "k"})
		_, fill := r.schedules.BackfillSchedule(ctx, &dtaskv1.BackfillScheduleRequest{Name: name, IdempotencyKey: "k", To: 1})
		for _, err := range []error{show, run, fill} {
			wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
			if got := status.Convert(err).Message(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
}
