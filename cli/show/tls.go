package show

import (
	"fmt"
	"strings"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// TLSStatus adds the CAs of a cluster, the certificates of its replicas, and the workers
// that lack a CA.
func (p *Printer) TLSStatus(s *dtaskv1.TLSStatusResponse) {
	names := make(map[string]string) // of CAs by the hash of their key
	cas := NewTable("CA", "KEY", "EXPIRES")
	for i, ca := range s.GetCas() {
		name := "issues"
		if i > 0 {
			name = "old"
		}
		names[string(ca.GetKeyHash())] = name
		cas.Row(name, shortHash(ca.GetKeyHash()), p.expiry(ca.GetExpiresAt()))
	}
	p.Table(cas)
	p.Line("")
	t := NewTable("REPLICA", "ADDRESS", "CA", "EXPIRES", "CURRENT", "CA KEY")
	for _, r := range s.GetReplicas() {
		if !r.GetReachable() {
			t.Row(r.GetServerId(), r.GetAddress(), "unreachable", "-", "-", "-")
			continue
		}
		name := names[string(r.GetCaKeyHash())]
		if name == "" {
			name = shortHash(r.GetCaKeyHash())
		}
		t.Row(r.GetServerId(), r.GetAddress(), name, p.expiry(r.GetExpiresAt()), yesNo(r.GetCurrent()), yesNo(r.GetHasCaKey()))
	}
	p.Table(t)
	if len(s.GetWorkersLacking()) > 0 {
		p.Line("")
		p.Line("%d of %d connected workers have not stored these CAs: %s", len(s.GetWorkersLacking()), s.GetWorkers(), Clean(strings.Join(s.GetWorkersLacking(), ", ")))
	}
}

// RotatedCA adds the result of a rotation.
func (p *Printer) RotatedCA(r *dtaskv1.RotateCAResponse, finish bool) {
	s := r.GetStatus()
	switch {
	case finish && r.GetAlready():
		p.Line("nothing to finish: the cluster trusts one CA")
	case r.GetAlready():
		p.Line("the CA is being replaced already")
	case len(s.GetCas()) == 1:
		p.Line("dropped the old CA")
	default:
		p.Line("made a new CA, which the coordinators use")
	}
	p.Line("")
	p.TLSStatus(s)
	if len(r.GetMustJoin()) > 0 {
		p.Line("")
		p.Line("Must join or log in again with a new join string:")
		for _, name := range r.GetMustJoin() {
			p.Line("  %s", Clean(name))
		}
	}
	if len(s.GetCas()) > 1 {
		p.Line("")
		p.Line("Next: dtaskctl tls rotate-ca --finish, once nobody lacks the new CA (dtaskctl tls status)")
	}
}

// shortHash is how tables name a key.
func shortHash(hash []byte) string { return fmt.Sprintf("sha256:%.4x…", hash) }

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
