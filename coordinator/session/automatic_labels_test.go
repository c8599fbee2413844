package session_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func automaticHello(name string, labels map[string]string) *dtaskv1.Hello {
	hello := labeled(name, labels)
	hello.Os, hello.Arch, hello.Isolation, hello.Address = "linux", "arm64", "user", "host-of-another"
	return hello
}

// In a cluster with identities, the label worker is the name of the identity, and the host
// that a worker names is not a label unless it was granted.
func TestAutomaticLabelsAreThoseThatAWorkerCannotInvent(t *testing.T) {
	t.Parallel()
	h := granting(t, map[string]session.Grant{
		"plain":   {Namespaces: []string{"*"}},
		"granted": {Labels: map[string]string{"host": "db-1", "arch": "amd64", "worker": "other"}, Namespaces: []string{"*"}},
		"open":    {AnyLabels: true, Namespaces: []string{"*"}},
	})
	for name, want := range map[string]string{
		"plain":   "arch=arm64 isolation=user os=linux worker=plain",
		"granted": "arch=amd64 host=db-1 isolation=user os=linux worker=granted",
		"open":    "arch=arm64 host=host-of-another isolation=user os=linux worker=open",
	} {
		h.join(automaticHello(name, nil))
		var got []string
		h.machine.Read(func(st *fsm.State, _ uint64) {
			for _, l := range st.WorkerByName(name).Labels {
				if fsm.IsAutomaticLabel(l.Key) {
					got = append(got, l.Key+"="+l.Value)
				}
			}
		})
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("worker %s: got %v, want %s", name, got, want)
		}
	}
}

// A worker of an earlier version, or one that lies, may announce labels with these keys.
func TestAnAutomaticLabelCannotBeOverridden(t *testing.T) {
	t.Parallel()
	h := granting(t, map[string]session.Grant{
		"open":  {AnyLabels: true, Namespaces: []string{"*"}},
		"named": {Labels: map[string]string{"worker": "w9"}, Namespaces: []string{"*"}},
	})
	for _, c := range []struct{ worker, label, value, has string }{
		{"open", "worker", "w9", "open"},
		{"open", "host", "db-1", "host-of-another"},
		{"open", "os", "plan9", "linux"},
		{"named", "worker", "w9", "named"},
	} {
		p := h.dial()
		p.say(&dtaskv1.SessionRequest{Hello: automaticHello(c.worker, map[string]string{c.label: c.value})})
		err := p.refusal()
		if want := "announces the label " + c.label + "=" + c.value; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+c.has+`"`) {
			t.Errorf("got %v, want an error with %q and the value %q", err, want, c.has)
		}
	}
	h.join(automaticHello("open", map[string]string{"os": "linux"})) // it says what is true
}

// A label cannot make a worker reserved: only what it announces does.
func TestAWorkerThatAnnouncesItIsReserved(t *testing.T) {
	t.Parallel()
	h := granting(t, map[string]session.Grant{"reserved": {Namespaces: []string{"*"}}, "plain": {AnyLabels: true, Namespaces: []string{"*"}}})
	hello := labeled("reserved", nil)
	hello.Reserved = true
	h.join(hello)
	h.join(labeled("plain", map[string]string{fsm.ReservedLabel: "true"}))
	h.machine.Read(func(st *fsm.State, _ uint64) {
		for name, want := range map[string]bool{"reserved": true, "plain": false} {
			if got := st.WorkerByName(name).IsReserved(); got != want {
				t.Errorf("worker %s is reserved: %v, want %v", name, got, want)
			}
		}
	})
}
