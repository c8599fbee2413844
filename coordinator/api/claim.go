package api

import (
	"maps"
	"strings"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// namespaceLevel is the level from which on jobs may be in other namespaces than the
// default one: earlier versions ignore the field, and would show them to everyone.
const namespaceLevel fsm.Level = 2

// ownerLabel is the label that keeps the owner of a job file if the job belongs to an
// identity.
const ownerLabel = "owner"

// claim makes a job that of its caller: it is in a namespace that the caller has, and
// belongs to the caller's identity. Package spec reports an invalid namespace.
func (u *upload) claim(h *dtaskv1.JobHeader) error {
	u.scope = h.GetNamespace()
	if u.scope == "" {
		u.scope = u.caller.Home()
	}
	switch {
	case u.scope == "" && len(u.caller.Namespaces) == 0:
		return denied("%s has no namespace: an admin can give it one", u.caller)
	case u.scope == "":
		return invalid("job.namespace: missing; name one of %s, by --namespace or in the job file", strings.Join(u.caller.Namespaces, ", "))
	case auth.CheckNamespace(u.scope) == nil && !u.caller.Sees(u.scope):
		return denied("%s may not submit to the namespace %s", u.caller, quote(u.scope))
	}
	h.Namespace = u.scope
	if u.scope == auth.DefaultNamespace {
		h.Namespace = "" // as in clusters that know no namespaces
	}
	h.Run = nil // only the run of a schedule has it; see rerun
	if u.caller.Via == auth.ViaToken || u.caller.Via == auth.ViaKey {
		own(h, u.caller.Name)
	}
	return nil
}

// own makes a job that of an identity. The owner that was written stays as a label, unless
// there is a label of that name, or no further one is possible.
func own(h *dtaskv1.JobHeader, name string) {
	_, labeled := h.GetLabels()[ownerLabel]
	if h.GetOwner() != "" && h.GetOwner() != name && !labeled && len(h.GetLabels()) < spec.MaxLabels {
		labels := maps.Clone(h.GetLabels())
		if labels == nil {
			labels = make(map[string]string, 1)
		}
		labels[ownerLabel] = h.GetOwner()
		h.Labels = labels
	}
	h.Owner = name
}

// checkLevel refuses a job in a namespace that a replica of an earlier version would not
// separate, one that it would start too early or never cancel, and one that it would run on
// workers that its tasks exclude.
func (u *upload) checkLevel(h *dtaskv1.JobHeader) error {
	gated, placed := fsm.IsGated(h), usesPlacement(h)
	if h.GetNamespace() == "" && !gated && !placed {
		return nil
	}
	level, gateLevel := fsm.Level(0), fsm.OpLevel((*fsm.SealGated)(nil))
	u.cfg.Machine.Read(func(st *fsm.State, _ uint64) { level = st.Level() })
	const finish = "the cluster is at feature level %d, and %s require %d: finish the upgrade (dtaskctl cluster upgrade finish)"
	switch {
	case h.GetNamespace() != "" && level < namespaceLevel:
		return refused("job.namespace: "+finish, level, "namespaces", namespaceLevel)
	case gated && level < gateLevel:
		return refused("job: "+finish, level, "start_at, start_after, expires and concurrency", gateLevel)
	case placed && level < placementLevel:
		return refused("job: "+finish, level, "rules about labels, prefer, place, affinity and alternatives of resources", placementLevel)
	}
	return nil
}
