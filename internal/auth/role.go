package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what an identity may do. Its numbers are in the log and in snapshots: never
// change or reuse one.
type Role uint8

// The roles. Zero is nobody: a caller without credentials.
const (
	Anonymous Role = 0
	// Admin may do everything.
	Admin Role = 1
	// Operator may do everything with the cluster and with all jobs, but can neither give
	// nor take access.
	Operator Role = 2
	// Submitter may submit, read and change the jobs of its namespaces.
	Submitter Role = 3
	// Reader may read the jobs of its namespaces.
	Reader Role = 4
	// Scraper may read metrics. Its name is "metrics".
	Scraper Role = 5
	// Worker may run the tasks of its namespaces.
	Worker Role = 6
	// Replica is a coordinator of the cluster.
	Replica Role = 7
)

// roleNames are the texts of roles. They are part of the stable surface.
var roleNames = [...]string{
	Anonymous: "anonymous", Admin: "admin", Operator: "operator", Submitter: "submitter", Reader: "reader",
	Scraper: "metrics", Worker: "worker", Replica: "replica",
}

// String returns the name of the role.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// tokenRoles are the roles that a token can have. Workers and replicas have keys.
var tokenRoles = []Role{Admin, Operator, Submitter, Reader, Scraper}

// ParseTokenRole returns the role of a name, if a token can have it.
func ParseTokenRole(name string) (Role, error) {
	names := make([]string, len(tokenRoles))
	for i, r := range tokenRoles {
		if r.String() == name {
			return r, nil
		}
		names[i] = r.String()
	}
	last := len(names) - 1
	return Anonymous, fmt.Errorf("invalid role %q: must be %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// Scoped reports whether what the role may do is limited to the namespaces of the
// identity.
func (r Role) Scoped() bool { return r == Submitter || r == Reader || r == Worker }

const (
	// DefaultNamespace is the namespace of jobs that name none.
	DefaultNamespace = "default"
	// AllNamespaces stands for every namespace in the list of an identity.
	AllNamespaces = "*"
	maxNamespace  = 63
)

// CheckNamespace returns an error unless a job can be in a namespace of this name: 1–63
// lower-case letters, digits and dashes, of which the first and last are no dashes.
func CheckNamespace(name string) error {
	valid := name != "" && len(name) <= maxNamespace && name[0] != '-' && name[len(name)-1] != '-' &&
		!strings.ContainsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' })
	if !valid {
		return fmt.Errorf("invalid namespace %q: must be 1–%d lower-case letters, digits and dashes, and must not begin or end with a dash", name, maxNamespace)
	}
	return nil
}

// CheckNamespaces returns an error unless an identity can have these namespaces: names,
// or AllNamespaces alone.
func CheckNamespaces(names []string) error {
	if slices.Equal(names, []string{AllNamespaces}) {
		return nil
	}
	for _, name := range names {
		if name == AllNamespaces {
			return fmt.Errorf("invalid namespaces %s: %q must be the only one", strings.Join(names, ","), AllNamespaces)
		}
		if err := CheckNamespace(name); err != nil {
			return err
		}
	}
	return nil
}
