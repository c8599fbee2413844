package fsm

import (
	"errors"
	"fmt"
)

// clusterName is the name that operators give the cluster, and that may change.
type clusterName struct {
	name string // empty: none
}

// ClusterName is the name of the cluster; empty without one.
func (n *clusterName) ClusterName() string { return n.name }

// isClusterName reports whether a name has 1 to 63 of A-Z a-z 0-9 and -, and neither begins
// nor ends with -.
func isClusterName(name string) bool {
	if !isName(name) || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		if name[i] == '.' || name[i] == '_' {
			return false
		}
	}
	return true
}

// SetClusterName names the cluster. Its ID stays.
type SetClusterName struct {
	Name string // empty removes the name
}

func (*SetClusterName) kind() opKind { return 61 }

func (o *SetClusterName) fields(c *coder) { c.str(&o.Name) }

// apply sets the name.
// Rejects: Malformed, AlreadyEnded if the cluster has this name.
func (o *SetClusterName) apply(s *State, _ *Effects) Reason {
	switch {
	case o.Name != "" && !isClusterName(o.Name):
		return Malformed
	case o.Name == s.clusterName.name:
		return AlreadyEnded
	}
	s.clusterName.name = o.Name
	s.mixString(o.Name)
	return Accepted
}

// check checks that the name is one that the operation can set.
func (n *clusterName) check() error {
	if n.name != "" && !isClusterName(n.name) {
		return fmt.Errorf("malformed name %q of the cluster", n.name)
	}
	return nil
}

// clusterName writes the frame of the name. A cluster without a name has none, so that the
// form of its snapshots is that of builds without names.
func (f *frameWriter) clusterName(s *State) {
	if s.clusterName.name == "" {
		return
	}
	f.c.str(&s.clusterName.name)
	f.frame(frameClusterName)
}

// clusterName reads the frame, which is written only once, and only if there is a name.
func (f *frameReader) clusterName(d *decoder) {
	n := &f.s.clusterName
	again := n.name != ""
	c := coder{d: d}
	c.str(&n.name)
	if d.err == nil && (again || n.name == "") {
		d.fail(errors.New("empty or second frame of the cluster's name"))
	}
}
