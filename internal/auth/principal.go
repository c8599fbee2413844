package auth

import (
	"slices"
	"strings"
)

// Via is how a caller has proved who it is.
type Via string

// The ways.
const (
	ViaToken  Via = "token"
	ViaKey    Via = "key"    // of a worker's certificate
	ViaPeer   Via = "peer"   // certificate of a replica
	ViaSocket Via = "socket" // the Unix socket of a coordinator
	ViaOpen   Via = "open"   // a cluster on loopback without TLS: everyone may do everything
)

// Principal is a caller whose identity has been checked. It must not be modified.
type Principal struct {
	ID         uint64 // of the identity in the replicated state; 0 = it has none
	Name       string
	Role       Role
	Namespaces []string          // of a scoped role: sorted, or AllNamespaces
	Labels     map[string]string // granted to a worker
	Via        Via
	ExpiresMS  int64 // of the credential, Unix milliseconds; 0 = never
}

// Sees reports whether the principal may know of things in a namespace.
func (p *Principal) Sees(namespace string) bool {
	return !p.Role.Scoped() || slices.Contains(p.Namespaces, AllNamespaces) || slices.Contains(p.Namespaces, namespace)
}

// SeesAll reports whether the principal may know of things in every namespace.
func (p *Principal) SeesAll() bool {
	return !p.Role.Scoped() || slices.Contains(p.Namespaces, AllNamespaces)
}

// Home is the namespace of jobs for which the principal names none: DefaultNamespace if
// it has that, or its only one. Empty: the caller must name one.
func (p *Principal) Home() string {
	if p.Sees(DefaultNamespace) {
		return DefaultNamespace
	}
	if len(p.Namespaces) == 1 {
		return p.Namespaces[0]
	}
	return ""
}

// String describes the principal in errors and logs, such as "submitter ci (etl)".
func (p *Principal) String() string {
	text := p.Role.String()
	if p.Name != "" {
		text += " " + p.Name
	}
	if p.Role.Scoped() {
		text += " (" + strings.Join(p.Namespaces, ", ") + ")"
	}
	return text
}
