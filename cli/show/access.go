package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Tokens adds a table of identities. Below it, each secret of those that have several has
// a line, so that the user sees when the old one is no longer used.
func (p *Printer) Tokens(identities []*dtaskv1.Identity) {
	t := NewTable("ID", "NAME", "ROLE", "VIA", "NAMESPACES", "STATE", "EXPIRES", "LAST USED")
	var rotating []*dtaskv1.Identity
	for _, i := range identities {
		id, expires := fmt.Sprint(i.GetId()), p.expiry(i.GetExpiresAt())
		if i.GetRole() == "replica" {
			expires = "" // that of its certificate is not known here
		}
		if i.GetId() == 0 {
			id = ""
		}
		t.Row(id, i.GetName(), i.GetRole(), document.Via(i), strings.Join(i.GetNamespaces(), ","), i.GetState(),
			expires, p.ago(i.GetLastUsedAt()))
		if len(i.GetCredentials()) > 1 {
			rotating = append(rotating, i)
		}
	}
	p.Table(t)
	for _, i := range rotating {
		p.Line("")
		p.Line("%d has several secrets:", i.GetId())
		for _, c := range i.GetCredentials() {
			used := "not used that this coordinator knows of"
			if c.GetLastUsedAt() != 0 {
				used = "used " + p.ago(c.GetLastUsedAt())
			}
			p.Line("  %s %s, made %s, expires %s, %s", Clean(c.GetKind()), Clean(c.GetId()), p.ago(c.GetCreatedAt()), p.expiry(c.GetExpiresAt()), used)
		}
	}
}

// WhoAmI adds the caller as the cluster sees it.
func (p *Printer) WhoAmI(w *dtaskv1.WhoAmIResponse) {
	p.Line("%s", caller(w.GetRole(), w.GetName(), w.GetNamespaces()))
	if w.GetId() != 0 {
		p.field("id", fmt.Sprint(w.GetId()))
	}
	p.field("via", w.GetVia())
	if w.GetId() != 0 {
		p.field("expires", p.expiry(w.GetExpiresAt()))
	}
	p.field("cluster", w.GetClusterId())
}

// Caller describes an identity, such as "submitter ci (etl)".
func Caller(i *dtaskv1.Identity) string {
	return caller(i.GetRole(), i.GetName(), i.GetNamespaces())
}

func caller(role, name string, namespaces []string) string {
	text := Clean(role)
	if name != "" {
		text += " " + Clean(name)
	}
	if len(namespaces) > 0 {
		text += " (" + Clean(strings.Join(namespaces, ", ")) + ")"
	}
	return text
}

// JoinTokens adds a table of join strings. Those that never expire are red.
func (p *Printer) JoinTokens(tokens []*dtaskv1.JoinToken) {
	t := NewTable("ID", "PURPOSE", "ROLE", "NAMESPACES", "NAME", "LABELS", "USED", "STATE", "EXPIRES")
	for _, j := range tokens {
		used := fmt.Sprintf("%d of %d", j.GetUsed(), j.GetUses())
		if j.GetUses() == 0 {
			used = fmt.Sprint(j.GetUsed())
		}
		state := j.GetState()
		if state == "active" && j.GetExpiresAt() == 0 {
			state = permanent
		}
		t.Row(fmt.Sprint(j.GetId()), j.GetPurpose(), j.GetRole(), strings.Join(j.GetNamespaces(), ","), j.GetNamePattern(),
			formatLabels(j.GetLabels()), used, state, p.expiry(j.GetExpiresAt()))
	}
	p.Table(t)
}

// permanent is the state of an active join string that never expires.
const permanent = "never expires"

// expiry returns when something expires, or has expired.
func (p *Printer) expiry(ms int64) string { return Expiry(ms, p.now) }

// Expiry returns when something expires at a Unix time in milliseconds, or how long ago it
// has; 0 = never.
func Expiry(ms int64, now time.Time) string {
	if ms == 0 {
		return "never"
	}
	if left := time.UnixMilli(ms).Sub(now); left > 0 {
		return "in " + Duration(left)
	}
	return Ago(ms, now)
}

// Context adds a context: how the user connects to a cluster.
func (p *Printer) Context(c document.Context) {
	p.Line("%s", Clean(c.Name))
	p.field("cluster", c.ClusterID)
	for _, addr := range c.Addresses {
		p.field("address", addr)
	}
	for _, key := range c.CAKeys {
		p.field("CA key", key)
	}
	if c.ID != "" {
		p.field("user", c.User+", ID "+c.ID)
	}
	p.field("token", c.TokenFile)
}
