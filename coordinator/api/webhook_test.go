package api

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAJobWhoseWebhookCanNeverBeCalledIsRefused(t *testing.T) {
	t.Parallel()
	allowed := "http://10.0.0.1/"
	r := setup(t, func(c *Config) {
		c.CheckWebhook = func(url string) error {
			if url != allowed {
				return errors.New("address is private")
			}
			return nil
		}
	})
	submit := func(key, webhook string) (*dtaskv1.StoredJob, error) {
		h := header("x")
		h.Webhook = webhook
		return r.send(t.Context(), request(key, h, task("a")))
	}
	_, err := submit("refused", "http://10.0.0.2/")
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "webhook: address is private") {
		t.Errorf("got %v", err)
	}
	if _, err := submit("without", ""); err != nil {
		t.Errorf("without a webhook: %v", err)
	}
	first, err := submit("k", allowed)
	if err != nil {
		t.Fatal(err)
	}
	allowed = "" // the replica was restarted with another setting
	if again, err := submit("k", "http://10.0.0.1/"); err != nil || !again.GetExisted() || again.GetId() != first.GetId() {
		t.Errorf("repeat of a stored job: got %v, %v", again, err)
	}
}

// A client leaves out the header of a job if it is that of the one before it in the
// message.
func TestARefusedHeaderIsRefusedForEachNewJob(t *testing.T) {
	t.Parallel()
	allowed := true
	r := setup(t, func(c *Config) {
		c.CheckWebhook = func(string) error {
			if !allowed {
				return errors.New("address is private")
			}
			return nil
		}
	})
	hooked := header("hooked")
	hooked.Webhook = "http://10.0.0.1/"
	if _, err := r.send(t.Context(), request("stored", hooked, task("a"))); err != nil {
		t.Fatal(err)
	}
	allowed = false // the replica was restarted with another setting
	needing := header("needing")
	needing.Needs = []*dtaskv1.JobNeed{{Job: 77}}
	results, err := r.exchange(t.Context(), numbered(1,
		request("stored", hooked, task("a")), request("new", nil, task("a")),
		request("x", needing, task("a")), request("y", nil, task("a")),
	))
	if err != nil {
		t.Fatal(err)
	}
	if !results[1].GetStored().GetExisted() {
		t.Errorf("repeat of a stored job: got %v", results[1])
	}
	wantError(t, errorOf(results[2]), codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	for _, number := range []uint64{3, 4} {
		wantError(t, errorOf(results[number]), codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}
