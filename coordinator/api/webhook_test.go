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
