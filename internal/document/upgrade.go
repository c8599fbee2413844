package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Upgrade is the feature level of the cluster and what its members support.
type Upgrade struct {
	Level     uint32   `json:"level"`
	Held      bool     `json:"held"`        // the level is not raised automatically
	State     string   `json:"state"`       // complete, mixed or ready
	Supported uint32   `json:"supported"`   // by all members; 0 = unknown
	RaiseInMS int64    `json:"raise_in_ms"` // until the level is raised; 0 = it is not, or at once
	Next      string   `json:"next"`        // ID of the member to upgrade next; empty = none
	Members   []Member `json:"members"`
}

// FinishedUpgrade is the level after the end of an upgrade.
type FinishedUpgrade struct {
	Level   uint32 `json:"level"`
	Already bool   `json:"already"` // nothing had to change
}

// HeldUpgrade is the level that is held, or no longer held.
type HeldUpgrade struct {
	Level   uint32 `json:"level"`
	Held    bool   `json:"held"`
	Already bool   `json:"already"` // nothing had to change
}

// NewUpgrade converts the status of an upgrade.
func NewUpgrade(s *dtaskv1.UpgradeStatusResponse) Upgrade {
	return Upgrade{
		Level: s.GetLevel(), Held: s.GetHeld(), State: s.GetState(), Supported: s.GetSupported(),
		RaiseInMS: s.GetRaiseInMs(), Next: s.GetNext(), Members: list(s.GetMembers(), newMember),
	}
}

// NewFinishedUpgrade converts the response to the end of an upgrade.
func NewFinishedUpgrade(r *dtaskv1.FinishUpgradeResponse) FinishedUpgrade {
	return FinishedUpgrade{Level: r.GetLevel(), Already: r.GetAlready()}
}

// NewHeldUpgrade converts the response to a hold, or to its release.
func NewHeldUpgrade(r *dtaskv1.HoldUpgradeResponse, held bool) HeldUpgrade {
	return HeldUpgrade{Level: r.GetLevel(), Held: held, Already: r.GetAlready()}
}
