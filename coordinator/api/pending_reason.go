package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// pendingReason returns why a pending task can't be assigned, whatever the load:
// no worker that is up could run it. It is empty if one could. The tasks of one
// policy have one reason, which is found once.
func (r *taskReader) pendingReason(ref fsm.TaskRef) string {
	number, ok := r.st.PolicyNumber(ref)
	if !ok {
		return ""
	}
	reason, known := r.reasons[number]
	if !known {
		reason = pendingReason(r.st, r.job.Header, r.job.Policy(number))
		if r.reasons == nil {
			r.reasons = make(map[uint32]string)
		}
		r.reasons[number] = reason
	}
	return reason
}

// pendingReason leaves the workers that fulfill one requirement after the other,
// and names the first that leaves none.
func pendingReason(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy) string {
	left := slices.DeleteFunc(slices.Collect(st.Workers()), func(w *fsm.Worker) bool { return w.State != fsm.WorkerUp || w.Slots == 0 })
	if len(left) == 0 {
		return "no worker is up"
	}
	up := len(left)
	for _, r := range requirements(st, h, p) {
		before := len(left)
		left = slices.DeleteFunc(left, func(w *fsm.Worker) bool { return !r.met(w) })
		switch {
		case len(left) == 0 && before == up:
			return "no worker that is up " + r.text
		case len(left) == 0:
			return "no worker that fulfills the other requirements " + r.text
		}
	}
	if !slices.ContainsFunc(left, func(w *fsm.Worker) bool { return !w.Drains() }) {
		return "all workers that could run it drain"
	}
	return ""
}

// A requirement is one that a worker meets or not.
type requirement struct {
	text string // "handles tasks of type x"
	met  func(w *fsm.Worker) bool
}

// requirements returns what a task requires, and its queue in addition.
func requirements(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy) []requirement {
	namespace := namespaceOf(h)
	typ := fsm.RequiredType(p)
	text := fmt.Sprintf("handles tasks of type %q", typ)
	if typ == taskbody.CommandType {
		text = "runs commands"
	}
	list := []requirement{{"serves the namespace " + namespace, func(w *fsm.Worker) bool {
		served := w.Namespaces()
		return served == nil || slices.Contains(served, namespace)
	}}, {text, func(w *fsm.Worker) bool {
		types := w.Types()
		return types == nil || slices.Contains(types, typ)
	}}}
	for _, key := range slices.Sorted(maps.Keys(p.GetRequire())) {
		label := fsm.Label{Key: key, Value: p.GetRequire()[key]}
		list = append(list, requirement{
			fmt.Sprintf("has the label %s=%s", label.Key, label.Value),
			func(w *fsm.Worker) bool { return !fsm.IsOwnLabel(key) && slices.Contains(w.Labels, label) },
		})
	}
	for _, x := range p.GetRules() {
		list = append(list, ruleRequirement(x))
	}
	pooled := fsm.ChoosesWorkers(p)
	if q := st.Queue(fsm.QueueOf(h)); q != nil {
		for _, label := range q.Require {
			list = append(list, requirement{
				fmt.Sprintf("has the label %s=%s, which queue %s requires", label.Key, label.Value, q.Name),
				func(w *fsm.Worker) bool { return slices.Contains(w.Labels, label) },
			})
		}
		pooled = pooled || len(q.Require) > 0
	}
	if !pooled {
		list = append(list, requirement{"takes tasks that require none of its labels", func(w *fsm.Worker) bool { return !w.IsReserved() }})
	}
	for _, name := range p.GetSecrets() {
		list = append(list, requirement{"has the secret " + name, func(w *fsm.Worker) bool { return slices.Contains(w.Secrets(), name) }})
	}
	if len(p.GetAlternatives()) > 0 {
		return append(list, anyAlternative(p))
	}
	return append(list, resourceRequirements(p.GetResources())...)
}

// resourceRequirements are the amounts of resources, by name.
func resourceRequirements(resources map[string]int64) (list []requirement) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		wanted := resources[name]
		list = append(list, requirement{"has " + quantity(name, wanted), func(w *fsm.Worker) bool {
			return slices.ContainsFunc(w.Resources, func(r fsm.Resource) bool { return r.Name == name && r.Amount >= wanted })
		}})
	}
	return list
}

// anyAlternative is one of the alternatives of the resources of a task.
func anyAlternative(p *dtaskv1.TaskPolicy) requirement {
	texts := []string{quantities(p.GetResources())}
	all := [][]requirement{resourceRequirements(p.GetResources())}
	for _, other := range p.GetAlternatives() {
		texts = append(texts, quantities(other.GetResources()))
		all = append(all, resourceRequirements(other.GetResources()))
	}
	return requirement{"has " + strings.Join(texts, ", or "), func(w *fsm.Worker) bool {
		return slices.ContainsFunc(all, func(list []requirement) bool {
			return !slices.ContainsFunc(list, func(r requirement) bool { return !r.met(w) })
		})
	}}
}

// ruleRequirement is a rule about one label.
func ruleRequirement(x *dtaskv1.LabelRule) requirement {
	text, name := "has the label "+x.GetName(), x.GetName()
	switch {
	case x.GetNot():
		text = "lacks the label " + name + "=" + strings.Join(x.GetValues(), " and "+name+"=")
	case len(x.GetValues()) > 0:
		text = "has the label " + name + "=" + strings.Join(x.GetValues(), " or "+name+"=")
	}
	return requirement{text, func(w *fsm.Worker) bool {
		found := !fsm.IsOwnLabel(name) && slices.ContainsFunc(w.Labels, func(l fsm.Label) bool {
			return l.Key == name && (len(x.GetValues()) == 0 || slices.Contains(x.GetValues(), l.Value))
		})
		return found != x.GetNot()
	}}
}
