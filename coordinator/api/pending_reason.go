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

// pendingReason returns why a pending task can't be assigned, whatever the load: no worker that is
// up could run it, or it needs more than a quota of its queue. It is empty if one could.
func (r *taskReader) pendingReason(ref fsm.TaskRef) string { return r.unmetDemand(ref).GetDetail() }

// unmetDemand is unmetDemand of a task. The tasks of one policy share one, which is found once.
func (r *taskReader) unmetDemand(ref fsm.TaskRef) *dtaskv1.Reason {
	number, ok := r.st.PolicyNumber(ref)
	if !ok {
		return nil
	}
	reason, known := r.reasons[number]
	if !known {
		reason = unmetDemand(r.st, r.job.Header, r.job.Policy(number), anyWorker)
		if r.reasons == nil {
			r.reasons = make(map[uint32]*dtaskv1.Reason)
		}
		r.reasons[number] = reason
	}
	return reason
}

func anyWorker(fsm.WorkerID) bool { return true }

// unmetDemand leaves the workers that fulfill one requirement after the other, and returns the
// first that leaves none; nil if a worker could run the task. Detail is a sentence, CauseCode the
// code of the obstacle at the workers that fulfill the others, with its name, value and amounts.
// The quotas of the queue come last: a worker that joins changes nothing about them.
// Workers that the caller does not see don't count.
func unmetDemand(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy, sees func(fsm.WorkerID) bool) *dtaskv1.Reason {
	left := slices.DeleteFunc(slices.Collect(st.Workers()), func(w *fsm.Worker) bool {
		return w.State != fsm.WorkerUp || w.Slots == 0 || !sees(w.ID)
	})
	if len(left) == 0 {
		return &dtaskv1.Reason{CauseCode: "no_worker", Detail: "no worker is up"}
	}
	up := len(left)
	for _, r := range requirements(st, h, p) {
		if !slices.ContainsFunc(left, r.met) {
			which := "no worker that fulfills the other requirements "
			if len(left) == up {
				which = "no worker that is up "
			}
			return r.unmet(which, left)
		}
		left = slices.DeleteFunc(left, func(w *fsm.Worker) bool { return !r.met(w) })
	}
	if !slices.ContainsFunc(left, func(w *fsm.Worker) bool { return !w.Drains() }) {
		return &dtaskv1.Reason{CauseCode: "worker_drains", Detail: "all workers that could run it drain"}
	}
	return aboveQuota(st.Queue(fsm.QueueOf(h)), p, left)
}

// aboveQuota returns the reason that a task needs more than a quota of its queue, by each of its
// alternatives that one of some workers could run; nil otherwise. They fulfill all else.
func aboveQuota(q *fsm.Queue, p *dtaskv1.TaskPolicy, workers []*fsm.Worker) *dtaskv1.Reason {
	if q == nil {
		return nil
	}
	alternatives := []map[string]int64{p.GetResources()}
	for _, other := range p.GetAlternatives() {
		alternatives = append(alternatives, other.GetResources())
	}
	reason := &dtaskv1.Reason{CauseCode: "queue_short", Value: q.Name}
	var texts []string
	for i, resources := range alternatives {
		needs := resourceRequirements(resources)
		if !slices.ContainsFunc(workers, func(w *fsm.Worker) bool {
			return !slices.ContainsFunc(needs, func(r requirement) bool { return !r.met(w) })
		}) {
			continue
		}
		at := slices.IndexFunc(q.Max, func(most fsm.Resource) bool { return resources[most.Name] > most.Amount })
		if at < 0 {
			return nil
		}
		most, number := q.Max[at], uint32(0)
		if len(alternatives) > 1 {
			number = uint32(i) + 1 //nolint:gosec // few
		}
		reason.Name, reason.Want, reason.Unit = most.Name, resources[most.Name], unitThousandths
		texts = append(texts, fmt.Sprintf("queue %s has a quota of %s, and %s are needed", q.Name, quantity(most.Name, most.Amount), quantity(most.Name, reason.GetWant()))+inAlternative(number))
	}
	reason.Detail = strings.Join(texts, "; ")
	return reason
}

// A requirement is one that a worker meets or not.
type requirement struct {
	text  string // "handles tasks of type x"
	met   func(w *fsm.Worker) bool
	code  string // of the obstacle at a worker that does not
	name  string // of what is required
	value string // of a label, or of the rule about it
	want  int64  // of a resource, in thousandths; 0 = it is about none
}

// unmet returns the reason that none of some workers meets the requirement.
func (r *requirement) unmet(which string, workers []*fsm.Worker) *dtaskv1.Reason {
	reason := &dtaskv1.Reason{CauseCode: r.code, Name: r.name, Value: r.value, Detail: which + r.text}
	if r.want == 0 {
		return reason
	}
	for _, w := range workers {
		reason.Total = max(reason.GetTotal(), amountOf(w, r.name))
	}
	reason.Want, reason.Free, reason.Unit = r.want, reason.GetTotal(), unitThousandths
	return reason
}

// amountOf returns how much of a resource a worker has, in thousandths of its unit.
func amountOf(w *fsm.Worker, resource string) int64 {
	for _, r := range w.Resources {
		if r.Name == resource {
			return r.Amount
		}
	}
	return 0
}

// requirements returns what a task requires, and its queue in addition.
func requirements(st *fsm.State, h *dtaskv1.JobHeader, p *dtaskv1.TaskPolicy) []requirement {
	namespace := namespaceOf(h)
	typ := fsm.RequiredType(p)
	text := fmt.Sprintf("handles tasks of type %q", typ)
	if typ == taskbody.CommandType {
		text = "runs commands"
	}
	list := []requirement{{text: "serves the namespace " + namespace, code: "namespace_missing", name: namespace, met: func(w *fsm.Worker) bool {
		served := w.Namespaces()
		return served == nil || slices.Contains(served, namespace)
	}}, {text: text, code: "type_missing", name: typ, met: func(w *fsm.Worker) bool {
		types := w.Types()
		return types == nil || slices.Contains(types, typ)
	}}}
	for _, key := range slices.Sorted(maps.Keys(p.GetRequire())) {
		list = append(list, labelRequirement(fsm.Label{Key: key, Value: p.GetRequire()[key]}))
	}
	for _, x := range p.GetRules() {
		list = append(list, ruleRequirement(x))
	}
	pooled := fsm.ChoosesWorkers(p)
	if q := st.Queue(fsm.QueueOf(h)); q != nil {
		for _, label := range q.Require {
			x := labelRequirement(label)
			x.text += ", which queue " + q.Name + " requires"
			list = append(list, x)
		}
		pooled = pooled || len(q.Require) > 0
	}
	if !pooled {
		list = append(list, requirement{text: "takes tasks that require none of its labels", code: "worker_reserved", met: func(w *fsm.Worker) bool { return !w.IsReserved() }})
	}
	for _, name := range p.GetSecrets() {
		list = append(list, requirement{text: "has the secret " + name, code: "secret_missing", name: name, met: func(w *fsm.Worker) bool { return slices.Contains(w.Secrets(), name) }})
	}
	if len(p.GetAlternatives()) > 0 {
		return append(list, anyAlternative(p))
	}
	return append(list, resourceRequirements(p.GetResources())...)
}

// labelRequirement is a label with its value. Labels of the coordinators fulfill none: before they
// were refused, jobs and queues could require them.
func labelRequirement(label fsm.Label) requirement {
	return requirement{
		text: fmt.Sprintf("has the label %s=%s", label.Key, label.Value), code: "label_missing", name: label.Key, value: label.Value,
		met: func(w *fsm.Worker) bool { return !fsm.IsOwnLabel(label.Key) && slices.Contains(w.Labels, label) },
	}
}

// resourceRequirements are the amounts of resources, by name.
func resourceRequirements(resources map[string]int64) (list []requirement) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		wanted := resources[name]
		list = append(list, requirement{
			text: "has " + quantity(name, wanted), code: "resource_short", name: name, want: wanted,
			met: func(w *fsm.Worker) bool { return amountOf(w, name) >= wanted },
		})
	}
	return list
}

// anyAlternative is one of the alternatives of the resources of a task. What they lack differs, so
// that only its text names it.
func anyAlternative(p *dtaskv1.TaskPolicy) requirement {
	texts := []string{quantities(p.GetResources())}
	all := [][]requirement{resourceRequirements(p.GetResources())}
	for _, other := range p.GetAlternatives() {
		texts = append(texts, quantities(other.GetResources()))
		all = append(all, resourceRequirements(other.GetResources()))
	}
	return requirement{text: "has " + strings.Join(texts, ", or "), code: "resource_short", met: func(w *fsm.Worker) bool {
		return slices.ContainsFunc(all, func(list []requirement) bool {
			return !slices.ContainsFunc(list, func(r requirement) bool { return !r.met(w) })
		})
	}}
}

// ruleRequirement is a rule about one label.
func ruleRequirement(x *dtaskv1.LabelRule) requirement {
	name, values := x.GetName(), x.GetValues()
	r := requirement{text: "has the label " + name, code: "label_missing", name: name, value: "*"}
	switch {
	case x.GetNot():
		r.text, r.code = "lacks the label "+name+"="+strings.Join(values, " and "+name+"="), "label_excluded"
	case len(values) > 0:
		r.text, r.code = "has the label "+name+"="+strings.Join(values, " or "+name+"="), "label_not_one_of"
	}
	switch len(values) {
	case 0:
	case 1:
		r.value = values[0]
	default:
		r.value = "[" + strings.Join(values, ", ") + "]"
	}
	r.met = func(w *fsm.Worker) bool {
		found := !fsm.IsOwnLabel(name) && slices.ContainsFunc(w.Labels, func(l fsm.Label) bool {
			return l.Key == name && (len(values) == 0 || slices.Contains(values, l.Value))
		})
		return found != x.GetNot()
	}
	return r
}
