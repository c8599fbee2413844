package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AuditHead is the last line of a coordinator's audit log that the cluster knows. A log
// that has no such line was cut or changed.
type AuditHead struct {
	ServerID string
	Seq      uint64          // number of the line, from 1
	Hash     [sha256Len]byte // SHA-256 of the line
	AtMS     int64           // when the head was recorded, by the leader's clock
}

func (h *AuditHead) fields(c *coder) {
	c.str(&h.ServerID)
	number(c, &h.Seq)
	c.hash(&h.Hash)
	c.i64(&h.AtMS)
}

func (h *AuditHead) malformed() bool {
	return h.ServerID == "" || len(h.ServerID) > maxIdentityText || h.Seq == 0 || h.Hash == [sha256Len]byte{} || h.AtMS <= 0
}

// auditHeads are the heads of the audit logs, at most maxAuditHeads.
type auditHeads struct {
	heads []AuditHead // ascending by server id
}

// AuditHeads returns the heads of the audit logs, ascending by server id. Shared: never
// change it.
func (t *auditHeads) AuditHeads() []AuditHead { return t.heads }

// AuditHead returns the head of a coordinator's audit log.
func (t *auditHeads) AuditHead(serverID string) (head AuditHead, known bool) {
	at, found := t.head(serverID)
	if !found {
		return AuditHead{}, false
	}
	return t.heads[at], true
}

func (t *auditHeads) head(serverID string) (at int, found bool) {
	return slices.BinarySearchFunc(t.heads, serverID, func(h AuditHead, id string) int { return strings.Compare(h.ServerID, id) })
}

// dropOldest removes the head that was recorded first, which is that of a coordinator that
// has left long ago: server ids are never reused.
func (t *auditHeads) dropOldest() AuditHead {
	oldest := 0
	for i, h := range t.heads {
		if h.AtMS < t.heads[oldest].AtMS {
			oldest = i
		}
	}
	dropped := t.heads[oldest]
	t.heads = slices.Delete(t.heads, oldest, oldest+1)
	return dropped
}

// check checks that the heads are some that operations can record.
func (t *auditHeads) check() error {
	if len(t.heads) > maxAuditHeads {
		return fmt.Errorf("heads of %d audit logs", len(t.heads))
	}
	for i := range t.heads {
		if h := &t.heads[i]; h.malformed() || i > 0 && t.heads[i-1].ServerID >= h.ServerID {
			return fmt.Errorf("malformed or unsorted head of the audit log of %q", h.ServerID)
		}
	}
	return nil
}

// auditHeads writes the frame of the heads. A cluster without any has none, so that the
// form of its snapshots is that of builds without audit logs.
func (f *frameWriter) auditHeads(s *State) {
	if len(s.auditHeads.heads) == 0 {
		return
	}
	s.auditHeads.fields(&f.c)
	f.frame(frameAuditHeads)
}

func (t *auditHeads) fields(c *coder) {
	list(c, &t.heads, func(h *AuditHead) { h.fields(c) })
}

// auditHeads reads the frame, which is written only once, and only if there are heads.
func (f *frameReader) auditHeads(d *decoder) {
	t := &f.s.auditHeads
	again := len(t.heads) > 0
	t.fields(&coder{d: d})
	if d.err == nil && (again || len(t.heads) == 0) {
		d.fail(errors.New("empty or second frame of the audit logs"))
	}
}

func (d *digester) mixAuditHead(h *AuditHead) {
	d.mixString(h.ServerID)
	d.mix(h.Seq)
	d.mixBytes(h.Hash[:])
	d.mix(uint64(h.AtMS)) //nolint:gosec // bits only
}
