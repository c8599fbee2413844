package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
)

func TestTheHintOfAClusterWithoutALeaderIsNotItsAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  client.Error
		want string
	}{
		{client.Error{}, "check that a coordinator is running at this address"},
		{client.Error{Answered: true}, "dtaskctl cluster status shows the coordinators: more than half of them must be up"},
		{client.Error{Answered: true, Unknown: true, Key: "k"}, "the job may have been submitted: to submit it once, repeat with --idempotency-key k"},
	} {
		c.err.Kind = client.ErrUnreachable
		if code, hint := classify(fmt.Errorf("listing queues: %w", &c.err)); code != exitUnreachable || !strings.HasPrefix(hint, c.want) {
			t.Errorf("%+v: got %d, %q, want %q", c.err, code, hint, c.want)
		}
	}
}
