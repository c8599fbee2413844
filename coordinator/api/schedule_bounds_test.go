package api

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// largeSchedule is a request to set a schedule whose job has about so many MiB.
func largeSchedule(name string, mib int) (messages []*dtaskv1.SetScheduleRequest) {
	const perPart = 17
	payload := make([]byte, 60<<10)
	for i := range mib {
		p := &dtaskv1.JobPart{More: i < mib-1}
		for k := range perPart {
			x := task(fmt.Sprintf("t%d", i*perPart+k))
			x.Body.Payload = payload
			p.Tasks = append(p.Tasks, x)
		}
		messages = append(messages, &dtaskv1.SetScheduleRequest{Part: p})
	}
	first := everyTenMinutes(name, "etl")
	messages[0].Definition = first.GetDefinition()
	messages[0].Part.Header, messages[0].Part.Total = first.GetPart().GetHeader(), uint32(mib*perPart)
	return messages
}

func TestASchedulesJobThatIsTooLargeIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	ctx := as(t.Context(), "submitter")
	set := func(name string, mib int) error {
		_, err := r.sendSchedule(ctx, largeSchedule(name, mib)...)
		return err
	}
	refused := func(name string, mib int) {
		t.Helper()
		err := set(name, mib)
		wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
		if want := "the limits of schedules are 10,000, and 64 MiB for all of their jobs together: delete some, or make the job smaller"; !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	refused("nightly", 67)
	if err := set("nightly", 60); err != nil {
		t.Fatal(err)
	}
	refused("weekly", 7)
	if err := set("weekly", 3); err != nil {
		t.Errorf("a smaller job: got %v", err)
	}
	if _, err := r.schedules.DeleteSchedule(ctx, &dtaskv1.DeleteScheduleRequest{Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	if err := set("monthly", 7); err != nil {
		t.Errorf("after a deletion: got %v", err)
	}
}
