package raftnode

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator/logstore"
)

func TestADataDirectoryIsNotOpenedWithAnotherStore(t *testing.T) {
	t.Parallel()
	for have, want := range map[logstore.Kind]logstore.Kind{logstore.Bolt: logstore.WAL, logstore.WAL: logstore.Bolt} {
		t.Run(fmt.Sprintf("%s with %s", have, want), func(t *testing.T) {
			t.Parallel()
			n := newTestNode(t, "n1", nil)
			n.kind = have
			n.start(t, []Server{{ID: n.id, Address: n.address, Voter: true}})
			n.stands(t)
			cluster{n}.leader(t)
			n.propose(t, 1, 20)
			n.stop(t)

			n.kind = want
			_, err := Inspect(n.dir, want)
			n.listen(t)
			node, openErr := Open(n.config(t))
			if openErr == nil {
				_ = node.Close(t.Context())
			}
			for _, err := range []error{err, openErr} {
				var other *logstore.KindError
				if _, damaged := errors.AsType[*logstore.DamageError](err); damaged || !errors.As(err, &other) || other.Have != have || other.Want != want {
					t.Fatalf("got %v, want a KindError", err)
				}
				for _, part := range []string{n.dir, "--log-store=" + string(have), "--log-store=" + string(want), "empty data directory"} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v: it does not contain %q", err, part)
					}
				}
			}
			n.kind = have
			n.start(t, nil)
			n.stands(t)
			cluster{n}.leader(t)
			n.holds(t, 20)
		})
	}
}

// An empty data directory has nothing to lose.
func TestADataDirectoryWithoutStateAcceptsAnyStore(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	for _, store := range []logstore.Kind{logstore.WAL, logstore.Bolt, logstore.WAL} {
		n.kind = store
		n.start(t, nil)
		n.stop(t)
		n.listen(t)
	}
	n.start(t, []Server{{ID: n.id, Address: n.address, Voter: true}})
	cluster{n}.leader(t).propose(t, 1, 3)
	n.stop(t)
	if found, err := Inspect(n.dir, logstore.WAL); err != nil || found.Last < 3 {
		t.Errorf("the store is %+v, %v", found, err)
	}
}
