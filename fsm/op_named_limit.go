package fsm

import "slices"

// SetLimit sets a named limit, or replaces the one of its name.
type SetLimit struct {
	Name string
	LimitSettings
	By        string // name of the one that asks for it
	IfVersion uint32 // the limit must have this version; 0 = any, or none
	AtMS      int64  // by the leader's clock
}

func (*SetLimit) kind() opKind { return 65 }

func (o *SetLimit) fields(c *coder) {
	c.str(&o.Name)
	o.LimitSettings.fields(c)
	c.str(&o.By)
	number(c, &o.IfVersion)
	c.i64(&o.AtMS)
}

// apply sets the limit. If it has this value already, nothing changes, so that a repeated
// request has no effect.
// Rejects: Malformed, VersionMismatch, LimitExceeded.
func (o *SetLimit) apply(s *State, _ *Effects) Reason {
	old := s.NamedLimit(o.Name)
	l := &NamedLimit{Name: o.Name, Version: 1, LimitSettings: o.LimitSettings, By: o.By, CreatedMS: o.AtMS, ChangedMS: o.AtMS}
	if old != nil {
		l.Version, l.CreatedMS = old.Version+1, old.CreatedMS
	}
	switch {
	case l.malformed():
		return Malformed
	case old != nil && old.LimitSettings == o.LimitSettings:
		return Accepted
	case o.IfVersion != 0 && (old == nil || old.Version != o.IfVersion):
		return VersionMismatch
	case old == nil && len(s.namedLimits.list) >= maxNamedLimits:
		return LimitExceeded
	}
	s.mixNamedLimit(old)
	s.namedLimits.put(l)
	s.mixNamedLimit(l)
	return Accepted
}

// DeleteLimit removes a named limit.
type DeleteLimit struct {
	Name      string
	IfVersion uint32 // it must have this version; 0 = any
}

func (*DeleteLimit) kind() opKind { return 66 }

func (o *DeleteLimit) fields(c *coder) {
	c.str(&o.Name)
	number(c, &o.IfVersion)
}

// apply removes the limit. Jobs that use it have ended. If one of them is retried, nothing
// limits it.
// Rejects: LimitNotFound, VersionMismatch, WrongState while a job that has not ended, or a
// schedule, uses it.
func (o *DeleteLimit) apply(s *State, _ *Effects) Reason {
	at, found := s.namedLimits.at(o.Name)
	switch {
	case !found:
		return LimitNotFound
	case o.IfVersion != 0 && s.namedLimits.list[at].Version != o.IfVersion:
		return VersionMismatch
	case s.limitInUse(o.Name):
		return WrongState
	}
	s.mixNamedLimit(s.namedLimits.list[at])
	s.namedLimits.list = slices.Delete(slices.Clone(s.namedLimits.list), at, at+1)
	return Accepted
}
