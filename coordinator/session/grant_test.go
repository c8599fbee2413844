package session_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// granting is a house that grants by the name of the worker, whose sessions share a
// stream.
func granting(t *testing.T, grants map[string]session.Grant) *house {
	t.Helper()
	h := newHouse(t, func(c *session.Config) {
		c.Authorize = func(_ context.Context, hello *dtaskv1.Hello) (session.Grant, error) {
			if g, ok := grants[hello.GetName()]; ok {
				return g, nil
			}
			return session.Grant{}, errors.New("no identity has the name " + hello.GetName())
		}
	})
	h.shared = true
	h.lead(1)
	return h
}

func labeled(name string, labels map[string]string) *dtaskv1.Hello {
	hello := helloOf(name, 1)
	hello.Labels = labels
	return hello
}

// refusal receives the end of a session that should be refused; nil if it is welcome.
func (p *peer) refusal() error {
	guard := time.AfterFunc(5*time.Minute, p.cancel)
	defer guard.Stop()
	for {
		if m, err := p.stream.Recv(); err != nil || m.GetWelcome() != nil {
			return err
		}
	}
}

// One process could open sessions for workers that it is not.
func TestEverySessionOfAStreamIsAuthorized(t *testing.T) {
	t.Parallel()
	all := []string{"*"}
	h := granting(t, map[string]session.Grant{
		"w1": {Namespaces: all}, "w2": {Labels: map[string]string{"zone": "eu", "rack": "7"}, Namespaces: all},
		"nothing": {}, "open": {AnyLabels: true, Namespaces: all},
	})
	first := h.join(helloOf("w1", 1))
	for _, c := range []struct {
		hello *dtaskv1.Hello
		want  string // in the error
	}{
		{helloOf("w3", 1), "no identity has the name w3"},
		{labeled("w2", map[string]string{"zone": "secure"}), "label zone=secure"},
		{labeled("w2", map[string]string{"zone": "eu", "gpu": "yes"}), "label gpu=yes"},
		{labeled("w1", map[string]string{"a": "b"}), "label a=b"},
		{helloOf("nothing", 1), "may serve no namespace"},
	} {
		p := h.dial()
		p.say(&dtaskv1.SessionRequest{Hello: c.hello})
		if err := p.refusal(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("worker %s with labels %v: got %v, want an error with %q", c.hello.GetName(), c.hello.GetLabels(), err, c.want)
		}
	}
	h.join(labeled("w2", map[string]string{"zone": "eu"}))
	h.join(labeled("open", map[string]string{"a": "b"}))
	h.machine.Read(func(st *fsm.State, _ uint64) {
		if w := st.WorkerByName("w2"); len(w.Labels) != 3 || w.Labels[0].Key != "rack" || w.Labels[1].Key != "worker" || w.Namespaces() != nil {
			t.Errorf("got labels %v, want those that were granted", w.Labels)
		}
		if w := st.WorkerByName("w3"); w != nil {
			t.Errorf("a refused worker is registered: %v", w)
		}
	})
	h.submit("job", 3, 0, nil)
	first.assigned(1) // the stream and its first session have survived
}

func TestAWorkerGetsOnlyAttemptsOfItsNamespaces(t *testing.T) {
	t.Parallel()
	h := granting(t, map[string]session.Grant{"etl": {Namespaces: []string{"etl"}}, "plain": {Namespaces: []string{"default"}}})
	etl, plain := h.join(helloOf("etl", 9)), h.join(helloOf("plain", 9))
	foreign := h.submit("ml", 1, 0, &dtaskv1.JobHeader{Name: "ml", Namespace: "ml"})
	ordinary := h.submit("plain", 2, 0, nil)
	own := h.submit("etl", 2, 0, &dtaskv1.JobHeader{Name: "etl", Namespace: "etl"})
	for _, c := range []struct {
		p    *peer
		want fsm.JobID
	}{{etl, own}, {plain, ordinary}} {
		for _, a := range c.p.assigned(2) {
			if fsm.JobID(a.GetJob()) != c.want {
				t.Errorf("got an attempt of job %d, want only those of job %d", a.GetJob(), c.want)
			}
		}
	}
	if got := h.task(foreign, 0); got.State != fsm.Pending {
		t.Errorf("the task in a namespace that no worker serves is %v", got.State)
	}
}

func TestSessionsOfARevokedWorkerEndAtOnce(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	errRevoked := errors.New("revoked")
	h := newHouse(t, func(c *session.Config) {
		c.Authorize = func(_ context.Context, hello *dtaskv1.Hello) (session.Grant, error) {
			if hello.GetName() == "w2" && revoked.Load() {
				return session.Grant{}, errRevoked
			}
			return session.Grant{Namespaces: []string{"*"}}, nil
		}
	})
	h.shared = true
	h.lead(1)
	w1, w2 := h.join(helloOf("w1", 1)), h.join(helloOf("w2", 1))
	revoked.Store(true)
	h.service.EndSessions(func(name string) bool { return name == "w2" }, errRevoked)
	if err := w2.end(); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("got %v, want the reason of the end", err)
	}
	again := h.dial()
	again.say(&dtaskv1.SessionRequest{Hello: helloOf("w2", 1)})
	if err := again.refusal(); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("another session: got %v, want a refusal", err)
	}
	w1.say(&dtaskv1.SessionRequest{Heartbeat: 7})
	w1.next("an answer", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 7 })
}

// The grant may be taken between the decision and the moment at which EndSessions finds
// the session.
func TestAWorkerThatIsRevokedWhileItsSessionOpensIsRefused(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	h := newHouse(t, func(c *session.Config) {
		c.Authorize = func(context.Context, *dtaskv1.Hello) (session.Grant, error) {
			if asked.Add(1) > 1 {
				return session.Grant{}, errors.New("revoked")
			}
			return session.Grant{Namespaces: []string{"*"}}, nil
		}
	})
	h.lead(1)
	p := h.dial()
	p.say(&dtaskv1.SessionRequest{Hello: helloOf("w1", 1)})
	if err := p.refusal(); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("got %v, want a refusal", err)
	}
}
