package session_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestADeposedLeaderEndsTheSession(t *testing.T) {
	t.Parallel()
	later := &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: 9}
	for name, talk := range map[string]func(*house){
		"from the hello on": func(h *house) { h.dial().say(&dtaskv1.SessionRequest{Fence: later, Hello: helloOf("w", 1)}) },
		"in the middle":     func(h *house) { h.join(helloOf("w", 1)).say(&dtaskv1.SessionRequest{Fence: later, Heartbeat: 2}) },
	} {
		for _, by := range ways {
			t.Run(name+", "+by.String(), func(t *testing.T) {
				t.Parallel()
				h := by.house(t)
				h.lead(1)
				talk(h)
				if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
					t.Errorf("ended with %v, want that the term ended", err)
				}
			})
		}
	}
}

func TestTheEndOfTheTermEndsAllSessions(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			var peers []*peer
			for i := range 5 {
				peers = append(peers, h.join(helloOf(fmt.Sprintf("w%d", i), 1)))
			}
			h.end()
			for _, p := range peers {
				_ = p.end()
				if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
					t.Errorf("a session ended with %v, want the term is over", err)
				}
			}
		})
	}
}

// A worker that leaves before would find only replicas that know no leader.
func TestSessionsEndWithTheirTermOnceTheNextLeaderIsKnown(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			asked, known := make(chan uint64, 1), make(chan struct{})
			h := by.house(t, func(c *session.Config) {
				c.AwaitSuccessor = func(_ context.Context, term uint64) {
					asked <- term
					<-known
				}
			})
			h.lead(3)
			p := h.join(helloOf("w", 1))
			h.end()
			if term := <-asked; term != 3 {
				t.Errorf("asked for the successor of term %d, want 3", term)
			}
			told := make(chan struct{})
			go func() {
				defer close(told)
				h.service.AwaitEnded(t.Context())
			}()
			select {
			case <-told:
				t.Error("the session ended before the next leader was known")
			default:
			}
			close(known)
			<-told
			_ = p.end()
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v, want the term is over", err)
			}
		})
	}
}

// awaitsTerm configures a replica that may be elected before its term starts: asked gets a
// value when a session waits for changed.
func awaitsTerm(elected *atomic.Bool, asked chan<- struct{}, changed <-chan struct{}) func(*session.Config) {
	return func(c *session.Config) {
		c.Elected = elected.Load
		c.TermChanged = func() <-chan struct{} {
			select {
			case asked <- struct{}{}:
			default:
			}
			return changed
		}
	}
}

// Workers are redirected to a replica as soon as it is elected. In virtual time: a session
// waits for a short time only.
func TestASessionWaitsForTheTermOfAnElectedReplica(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var elected atomic.Bool
				asked, changed := make(chan struct{}, 1), make(chan struct{}, 1)
				h := by.house(t, awaitsTerm(&elected, asked, changed))
				elected.Store(true)
				p := h.dial()
				p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
				<-asked
				h.lead(1)
				close(changed)
				p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
			})
		})
	}
}

func TestASessionDoesNotWaitForTheTermOfAReplicaThatIsNotElected(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			var elected atomic.Bool
			asked, changed := make(chan struct{}, 1), make(chan struct{}, 1)
			h := by.house(t, awaitsTerm(&elected, asked, changed))
			elected.Store(true)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
			<-asked
			elected.Store(false) // another replica was elected
			changed <- struct{}{}
			_ = p.end()
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestAFailedEntryEndsSessions(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			h.submit("job", 1, 1, nil)
			a := p.assigned(1)
			h.log.mu.Lock()
			h.log.lost = true
			h.log.mu.Unlock()
			p.report(1, succeeded, a...)
			_ = p.end()
			for _, m := range p.seen {
				if m.GetAck() != nil {
					t.Error("an outcome was acknowledged that is not committed")
				}
			}
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
