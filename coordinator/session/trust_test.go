package session_test

import (
	"slices"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A worker lacks the CAs until it has reported them; one that reports none stores none,
// and gets none.
func TestWorkersGetTheCAsThatTheyLack(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			lacking := func(want ...string) {
				t.Helper()
				n, names := h.service.Lacking([]byte("new"))
				slices.Sort(names)
				if n != 2 || !slices.Equal(names, want) {
					t.Errorf("%d workers, of which %v lack the CAs, want %v", n, names, want)
				}
			}
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 2), Trust: []byte("old")})
			p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
			h.join(helloOf("without", 2))
			lacking("w", "without")
			h.service.OfferTrust(&dtaskv1.Trust{Addresses: []string{"n1:1"}}, []byte("new"))
			p.next("the CAs", func(m *dtaskv1.SessionResponse) bool { return len(m.GetTrust().GetAddresses()) == 1 })
			p.say(&dtaskv1.SessionRequest{Trust: []byte("new"), Heartbeat: 2})
			p.next("the answer", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 2 })
			lacking("without")
			p.cancel()
			_ = h.result()

			again := h.dial()
			again.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 2), Trust: []byte("old")})
			again.next("the CAs with the welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil && m.GetTrust() != nil })
		})
	}
}
