package api

import (
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// placementLevel is the level from which on tasks may have rules about the labels of
// workers, preferences, another strategy, an affinity, and alternatives of resources: earlier
// versions store them, and assign the tasks as if they had none. As each member of a cluster at
// this level knows them, no later leader ignores them.
const placementLevel fsm.Level = 3

// usesPlacement reports whether tasks of a job choose workers in a way that earlier versions
// ignore.
func usesPlacement(h *dtaskv1.JobHeader) bool {
	return slices.ContainsFunc(h.GetPolicies(), func(p *dtaskv1.TaskPolicy) bool {
		return len(p.GetRules())+len(p.GetPrefer())+len(p.GetAlternatives()) > 0 || p.GetPlace() != 0 || p.GetAffinity() != ""
	})
}
