package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// headOf is an operation that records line seq of the audit log of a coordinator.
func headOf(id string, seq uint64, hash byte) *RecordAuditHead {
	return &RecordAuditHead{AuditHead{ServerID: id, Seq: seq, Hash: hashed(hash), AtMS: int64(1000 + seq)}}
}

func TestTheHeadOfAnAuditLogOnlyMovesForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(headOf("n2", 5, 1)).do(headOf("n1", 3, 2)).do(headOf("n2", 9, 3)).do(headOf("n2", 9, 3))
	refused(t, w, "a shorter log", OutOfOrder, headOf("n2", 8, 4))
	refused(t, w, "another line of the same number", OutOfOrder, headOf("n2", 9, 4))
	for what, bad := range map[string]*RecordAuditHead{
		"no server":  headOf("", 1, 1),
		"no line":    headOf("n1", 0, 1),
		"no hash":    {AuditHead{ServerID: "n1", Seq: 10, AtMS: 1}},
		"no time":    {AuditHead{ServerID: "n1", Seq: 10, Hash: hashed(1)}},
		"long names": headOf(string(make([]byte, maxIdentityText+1)), 1, 1),
	} {
		refused(t, w, what, Malformed, bad)
	}
	want := []AuditHead{headOf("n1", 3, 2).AuditHead, headOf("n2", 9, 3).AuditHead}
	if got := w.s.AuditHeads(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, known := w.s.AuditHead("n2"); !known || got != want[1] {
		t.Errorf("n2: got %v, %t", got, known)
	}
	if _, known := w.s.AuditHead("n3"); known {
		t.Error("a coordinator without a head has one")
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
}

func TestTheHeadsOfAuditLogsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range uint64(maxAuditHeads + 2) {
		w.do(headOf(fmt.Sprintf("n%d", i), 1+i, 1))
	}
	heads := w.s.AuditHeads()
	_, first := w.s.AuditHead("n1")
	_, third := w.s.AuditHead("n2")
	if len(heads) != maxAuditHeads || first || !third {
		t.Errorf("%d heads; that of the second coordinator is kept: %t, of the third: %t", len(heads), first, third)
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
}

// A fork keeps its heads while those of its origin change.
func TestAForkKeepsItsHeadsOfAuditLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t).do(headOf("n1", 1, 1))
	fork := w.s.Fork()
	w.do(headOf("n1", 2, 2)).do(headOf("n0", 2, 2))
	if got := fork.AuditHeads(); len(got) != 1 || got[0].Seq != 1 {
		t.Errorf("the fork has %v", got)
	}
}

func TestASnapshotWithInvalidHeadsOfAuditLogsIsRefused(t *testing.T) {
	t.Parallel()
	for what, damage := range map[string]func(t *auditHeads){
		"unsorted":  func(t *auditHeads) { slices.Reverse(t.heads) },
		"repeated":  func(t *auditHeads) { t.heads[1] = t.heads[0] },
		"malformed": func(t *auditHeads) { t.heads[0].Seq = 0 },
		"too many":  func(t *auditHeads) { t.heads = make([]AuditHead, maxAuditHeads+1) },
	} {
		s := newWorld(t).do(headOf("n1", 1, 1)).do(headOf("n2", 2, 1)).s
		damage(&s.auditHeads)
		if err := s.Check(); err == nil {
			t.Errorf("%s: Check returns no error", what)
		}
		if _, err := ReadSnapshot(bytes.NewReader(snapshotOf(t, s))); err == nil {
			t.Errorf("%s: restored", what)
		}
	}
	if bytes.IndexByte(unframed(snapshotOf(t, newWorld(t).s)), byte(frameAuditHeads)) >= 0 {
		t.Error("a state without heads has a frame of them")
	}
}

// The digest of a replica whose heads differ from those of others differs from the next
// head on.
func TestADamagedHeadOfAnAuditLogIsDetectedWhenItChanges(t *testing.T) {
	t.Parallel()
	good, bad := newWorld(t).do(headOf("n1", 1, 1)).s, newWorld(t).do(headOf("n1", 1, 1)).s
	bad.auditHeads.heads[0].AtMS++
	for _, s := range []*State{good, bad} {
		if r := s.Apply(Entry{Ops: []Op{headOf("n1", 2, 2)}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	if good.Digest() == bad.Digest() {
		t.Error("the digests are equal")
	}
}
