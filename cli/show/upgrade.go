package show

import (
	"fmt"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Upgrade adds the versions and feature levels of a cluster's members, and the next step.
func (p *Printer) Upgrade(s *dtaskv1.UpgradeStatusResponse) {
	held := ""
	if s.GetHeld() {
		held = ", held"
	}
	p.Line("feature level %d%s", s.GetLevel(), held)
	t := NewTable("ID", "ADDRESS", "STATE", "VERSION", "LEVELS")
	for _, m := range s.GetMembers() {
		t.Row(m.GetId(), m.GetAddress(), m.GetState(), m.GetVersion(), levelsOf(m))
	}
	p.Table(t)
	p.Line("")
	p.Line("%s", nextStep(s))
}

// levelsOf returns the levels that a member supports.
func levelsOf(m *dtaskv1.Member) string {
	switch {
	case m.GetState() == "unreachable":
		return "unknown"
	case m.GetMaxLevel() <= 1:
		return "1"
	case m.GetMinLevel() == m.GetMaxLevel():
		return fmt.Sprint(m.GetMaxLevel())
	}
	return fmt.Sprintf("%d–%d", m.GetMinLevel(), m.GetMaxLevel())
}

// nextStep returns what the leader does next, or what the operator must do.
func nextStep(s *dtaskv1.UpgradeStatusResponse) string {
	next := Clean(s.GetNext())
	const finish = "dtaskctl cluster upgrade finish"
	switch {
	case s.GetState() == "mixed" && s.GetSupported() == 0:
		return "Next: start " + next + ", which does not respond."
	case s.GetState() == "mixed":
		return "Next: restart " + next + " with the new version."
	case s.GetState() == "ready" && s.GetHeld():
		return fmt.Sprintf("Next: run %s to raise the level to %d. Until then, all members can return to the older version.",
			finish, s.GetSupported())
	case s.GetState() == "ready":
		return fmt.Sprintf("The leader raises the level to %d in %s; %s does it now, and dtaskctl cluster upgrade hold prevents it.",
			s.GetSupported(), Duration(time.Duration(s.GetRaiseInMs())*time.Millisecond), finish)
	case next == "":
		return "All members run the same version."
	}
	return "All members run the same version. An upgrade starts with " + next + "; the leader is last."
}
