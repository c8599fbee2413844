package fsm

import "fmt"

// Level is a feature level: the set of operations and forms of snapshots that a
// cluster may use. Each build supports a range of levels and announces it. The leader
// raises the cluster's level when every member supports a higher one (ADR 0038), so
// that no replica gets what it can't read.
type Level uint32

// The levels that this build supports. A cluster without a SetLevel in its log is at
// level 1.
const (
	MinLevel Level = 1
	MaxLevel Level = 4
)

// OpLevel is the level from which on an operation may be proposed.
func OpLevel(op Op) Level { return operations[op.kind()].since }

// level is the cluster's feature level.
type level struct {
	current Level // from 1
	held    bool
}

// Level is the cluster's feature level, from 1.
func (l *level) Level() Level { return l.current }

// LevelHeld reports whether the operator keeps the level from being raised.
func (l *level) LevelHeld() bool { return l.held }

// isDefault reports whether the state is at level 1 and was not held: like that of a
// cluster without a SetLevel in its log.
func (l *level) isDefault() bool { return l.current == 1 && !l.held }

// LevelError means that a cluster is at a level above those that this build supports.
// The replica must not apply or restore anything.
type LevelError struct {
	Level Level // of the cluster
	Max   Level // that this build supports
	// Version is a version that supports the level; empty if unknown.
	Version string
}

// Error names both levels and the way out.
func (e *LevelError) Error() string {
	newer := "a newer version"
	if e.Version != "" {
		newer = "version " + e.Version + " or a newer one"
	}
	return fmt.Sprintf("the cluster is at feature level %d, and this build of dtask supports levels up to %d: run %s; "+
		"a finished upgrade cannot be undone", e.Level, e.Max, newer)
}

// SetLevel raises the cluster's level, or holds it where it is.
type SetLevel struct {
	Level Level
	Held  bool // the leader does not raise it until the operator finishes the upgrade
}

func (*SetLevel) kind() opKind { return 37 }

func (o *SetLevel) fields(c *coder) {
	number(c, &o.Level)
	c.bool(&o.Held)
}

// apply sets the level and whether it is held.
// Rejects: OutOfOrder if the level is below the cluster's, Malformed.
// A second copy changes nothing and is accepted.
func (o *SetLevel) apply(s *State, _ *Effects) Reason {
	switch {
	case o.Level == 0:
		return Malformed
	case o.Level < s.level.current:
		return OutOfOrder
	}
	if o.Level != s.level.current {
		s.event(Event{Kind: LevelEvent, Number: uint64(o.Level)})
	}
	s.level = level{current: o.Level, held: o.Held}
	s.mix(uint64(o.Level))
	if o.Held {
		s.mix(1)
	} else {
		s.mix(0)
	}
	return Accepted
}

// checkLevels returns a *LevelError if an entry sets a level above highest.
func checkLevels(e Entry, highest Level) error {
	for _, op := range e.Ops {
		if o, ok := op.(*SetLevel); ok && o.Level > highest {
			return &LevelError{Level: o.Level, Max: highest}
		}
	}
	return nil
}

// level writes the frame of the level. A cluster at level 1 has none, so that the form
// of its snapshots is that of builds that know no levels.
func (f *frameWriter) level(s *State) {
	if s.level.isDefault() {
		return
	}
	s.level.fields(&f.c)
	f.frame(frameLevel)
}

func (l *level) fields(c *coder) {
	number(c, &l.current)
	c.bool(&l.held)
}

// level reads the frame of the level if it is the next one. It comes first: the level
// decides what the other frames may contain.
func (f *frameReader) level(highest Level) error {
	kind, err := f.r.Peek(1)
	if err != nil || frameKind(kind[0]) != frameLevel {
		return nil //nolint:nilerr // the frames that are missing are reported when they are read
	}
	d, err := f.expect(frameLevel)
	if err != nil {
		return err
	}
	l := &f.s.level
	l.fields(&coder{d: d})
	switch {
	case d.err == nil && l.current > highest:
		return &LevelError{Level: l.current, Max: highest}
	case d.err == nil && (l.current == 0 || l.isDefault()):
		return fmt.Errorf("invalid frame of level %d", l.current)
	}
	return d.done()
}
