package sequencer_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/fsm"
)

func TestHeadsOfAuditLogsAreReplicatedAndThoseThatGoBackAreReturned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	head := func(id string, seq uint64, hash byte) fsm.AuditHead {
		return fsm.AuditHead{ServerID: id, Seq: seq, Hash: hashed(hash)}
	}
	_, err := s.RecordAuditHeads(t.Context(), head("n1", 1, 1))
	wantRejected(t, "below its feature level", err, fsm.AboveLevel)
	raise(t, s)
	for what, test := range map[string]struct {
		heads    []fsm.AuditHead
		rejected []string
	}{
		"new ones":      {[]fsm.AuditHead{head("n1", 5, 1), head("n2", 7, 2)}, nil},
		"the same":      {[]fsm.AuditHead{head("n1", 5, 1)}, nil},
		"one goes back": {[]fsm.AuditHead{head("n1", 4, 1), head("n3", 1, 3)}, []string{"n1"}},
		"one changes":   {[]fsm.AuditHead{head("n1", 5, 2)}, []string{"n1"}},
	} {
		if what != "new ones" {
			if _, err := s.RecordAuditHeads(t.Context(), head("n1", 5, 1), head("n2", 7, 2)); err != nil {
				t.Fatal(err)
			}
		}
		rejected, err := s.RecordAuditHeads(t.Context(), test.heads...)
		var ids []string
		for _, h := range rejected {
			ids = append(ids, h.ServerID)
		}
		if err != nil || !slices.Equal(ids, test.rejected) {
			t.Errorf("%s: rejected %v, %v", what, ids, err)
		}
	}
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if h, _ := s.AuditHead("n1"); len(s.AuditHeads()) != 3 || h.Seq != 5 || h.AtMS == 0 {
			t.Errorf("got %v", s.AuditHeads())
		}
	})
}
