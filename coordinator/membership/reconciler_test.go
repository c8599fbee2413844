package membership

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/timescale"
)

// The first one may need long, or may never answer.
func TestNonVotersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		stored map[string]uint64
		want   []string
	}{
		{"none has caught up", map[string]uint64{"n4": 1, "n5": 743}, nil},
		{"the second one has caught up", map[string]uint64{"n4": 743, "n5": 744}, []string{"promote n5"}},
		{"both have caught up", map[string]uint64{"n4": 1000, "n5": 744, "n6": 1000}, []string{"promote n4", "promote n5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, n := ofThree(t)
				r.op(t, &fsm.Replica{ServerID: "n4", Instance: "4"}, &fsm.Replica{ServerID: "n5", Instance: "5"}, &fsm.Replica{ServerID: "n6", Instance: "6"})
				for _, id := range []string{"n4", "n5", "n6"} { // n6 does not answer
					r.servers = append(r.servers, raftnode.Server{ID: id, Address: id + ":1"})
				}
				n.add(t, "n4:1", running("n4", "4"))
				n.add(t, "n5:1", running("n5", "5"))
				r.last, r.stored = 1000, c.stored
				reconciler := Reconciler{
					ServerID: "n1", Machine: r.machine, Peers: r.cfg.Peers, Node: r.cfg.Node, Recorder: r.cfg.Recorder, Scale: timescale.Factor(1),
					Logger: slog.New(slog.DiscardHandler),
				}
				reconciler.promote(t.Context())
				if !slices.Equal(r.changes, c.want) {
					t.Errorf("changes: %q, want %q", r.changes, c.want)
				}
			})
		})
	}
}
