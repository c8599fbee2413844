package session

import (
	"maps"
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// automaticLabels returns the labels that a worker with this grant has by itself. Its name is
// that of its identity, which was checked. In a cluster with identities, the host is
// one only if it was granted: a worker could name the host of another one, and get the tasks
// that are pinned to it. What it reports about its system is used like the types and
// resources that it reports, unless its identity was granted another value.
func (g *Grant) automaticLabels(h *dtaskv1.Hello) map[string]string {
	list := map[string]string{
		fsm.OSLabel: h.GetOs(), fsm.ArchLabel: h.GetArch(), fsm.IsolationLabel: h.GetIsolation(),
	}
	if g.AnyLabels {
		list[fsm.HostLabel] = h.GetAddress()
	} else {
		for _, key := range fsm.AutomaticLabels {
			if value, granted := g.Labels[key]; granted {
				list[key] = value
			}
		}
	}
	list[fsm.WorkerLabel] = h.GetName()
	maps.DeleteFunc(list, func(_, value string) bool { return value == "" })
	return list
}

// checkAutomatic refuses a worker that announces another value of a label than the one that
// it has by itself.
func (g *Grant) checkAutomatic(h *dtaskv1.Hello) error {
	list := g.automaticLabels(h)
	for _, key := range slices.Sorted(maps.Keys(h.GetLabels())) {
		if value, automatic := list[key]; automatic && value != h.GetLabels()[key] {
			return &RefusedError{Worker: h.GetName(), Label: key + "=" + h.GetLabels()[key], Has: value}
		}
	}
	return nil
}
