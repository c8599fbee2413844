package fsm

import "slices"

// RecordAuditHead records the head of a coordinator's audit log.
type RecordAuditHead struct{ AuditHead }

func (*RecordAuditHead) kind() opKind { return 48 }

// apply records the head. Beyond maxAuditHeads coordinators, the head that was recorded
// first is dropped.
// Rejects: Malformed, OutOfOrder if the log is shorter than it was, or has another line
// with the same number: then the log was cut or changed.
// The same line changes nothing and is accepted.
func (o *RecordAuditHead) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	t := &s.auditHeads
	at, found := t.head(o.ServerID)
	if found {
		switch last := &t.heads[at]; {
		case o.Seq < last.Seq || o.Seq == last.Seq && o.Hash != last.Hash:
			return OutOfOrder
		case o.Seq == last.Seq:
			return Accepted
		}
	}
	t.heads = slices.Clone(t.heads) // coordinators are few
	switch {
	case found:
		s.mixAuditHead(&t.heads[at])
		t.heads[at] = o.AuditHead
	default:
		if len(t.heads) >= maxAuditHeads {
			dropped := t.dropOldest()
			s.mixAuditHead(&dropped)
			at, _ = t.head(o.ServerID)
		}
		t.heads = slices.Insert(t.heads, at, o.AuditHead)
	}
	s.mixAuditHead(&o.AuditHead)
	return Accepted
}
