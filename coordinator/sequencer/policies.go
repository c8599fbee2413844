package sequencer

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/backoff"
)

// policyTable holds what the policies of unfinished jobs mean to the scheduler
// and the timers.
type policyTable struct {
	sched *scheduler.Scheduler
	rates *limitRates
	jobs  map[fsm.JobID]*jobPolicies
	last  headerCache
	// required has the labels that queues require in addition, by the name of the queue in
	// the scheduler.
	required map[string][]scheduler.Label
}

// setRequired sets the labels that a queue requires of the workers of its tasks. Jobs whose
// policies were read keep the former ones: see queues.moved.
func (p *policyTable) setRequired(queue string, labels []fsm.Label) {
	queue = schedulerQueue(queue)
	if p.forgetLast(); len(labels) == 0 {
		delete(p.required, queue)
		return
	}
	if p.required == nil {
		p.required = make(map[string][]scheduler.Label)
	}
	p.required[queue] = requiredLabels(labels)
}

// requiredLabels returns the labels that a queue requires as those of a demand.
func requiredLabels(labels []fsm.Label) []scheduler.Label {
	list := make([]scheduler.Label, len(labels))
	for i, l := range labels {
		list[i] = scheduler.Label{Name: l.Key, Value: l.Value}
	}
	return list
}

// jobPolicies are the policies of one job, by number. An entry never changes;
// updates of the job add new ones.
type jobPolicies struct {
	list    []policy
	pure    bool                         // one of them has a reuse
	limited map[uint32]scheduler.ClassID // of arrays with max_parallel, by their first task
}

type policy struct {
	class            scheduler.ClassID // of a task that is not in a limited array: see classOf
	demand           scheduler.Demand
	priority         scheduler.Priority
	queueTimeout     time.Duration // 0 = none
	requeues         bool          // the queue timeout requeues the task; else it fails
	startTimeout     time.Duration // 0 = Config.StartTimeout
	runTimeout       time.Duration // 0 = none
	heartbeatTimeout time.Duration // 0 = none
	killGrace        time.Duration
	reuse            time.Duration // how long the result of a pure task is cached; 0 = not pure
	rules            backoff.Rules
}

// headerCache has the policies of the header that was read last.
type headerCache struct {
	header *dtaskv1.JobHeader
	list   []policy
	pure   bool
}

// job returns the policies of a job, or nil if the job is unknown.
func (p *policyTable) job(v *fsm.State, id fsm.JobID) *jobPolicies {
	if j, ok := p.jobs[id]; ok {
		return j
	}
	job, ok := v.Job(id)
	if !ok {
		return nil
	}
	j := &jobPolicies{}
	p.read(v, j, job)
	if !job.State.Terminal() { // else nothing would remove it
		p.jobs[id] = j
		return j
	}
	// No class becomes unused: the header is now the last one that was read, and an update
	// changes no demand.
	for i := range j.list {
		p.sched.Unuse(j.list[i].class)
	}
	return j
}

// of returns the policy of a task; the zero policy if the task is unknown.
func (p *policyTable) of(v *fsm.State, t fsm.TaskRef) *policy {
	number, ok := v.PolicyNumber(t)
	if !ok {
		return &policy{}
	}
	return p.numbered(v, t.Job, number)
}

// numbered returns a policy of a job that exists.
func (p *policyTable) numbered(v *fsm.State, id fsm.JobID, number uint32) *policy {
	j := p.job(v, id)
	if int(number) >= len(j.list) { // an update has added it
		job, _ := v.Job(id)
		p.read(v, j, job)
	}
	return &j.list[number]
}

// read reads the policies that are not read yet. Jobs submitted together mostly
// share one header, whose policies are read once. Each policy of a job counts as a use of
// its class, and so does each of the last header.
func (p *policyTable) read(v *fsm.State, j *jobPolicies, job fsm.Job) {
	if len(j.list) == 0 && p.last.header == job.Header {
		j.list, j.pure = slices.Clip(p.last.list), p.last.pure
		for i := range j.list {
			p.sched.Retain(j.list[i].class)
		}
	}
	for n := uint32(len(j.list)); n < job.Policies(); n++ { //nolint:gosec // bounded by the job
		x := p.parse(v, job.Header, job.Policy(n))
		j.list, j.pure = append(j.list, x), j.pure || x.reuse > 0
	}
	if p.last.header == job.Header {
		return
	}
	p.forgetLast()
	p.last = headerCache{job.Header, j.list[:len(job.Header.GetPolicies())], j.pure}
	for i := range p.last.list {
		p.sched.Retain(p.last.list[i].class)
	}
}

// forgetLast ends the uses of the last header.
func (p *policyTable) forgetLast() {
	for i := range p.last.list {
		p.sched.Retire(p.last.list[i].class)
	}
	p.last = headerCache{}
}

func (p *policyTable) parse(v *fsm.State, h *dtaskv1.JobHeader, t *dtaskv1.TaskPolicy) policy {
	d := demand(t)
	d.Namespace, d.Queue, d.Owner = h.GetNamespace(), schedulerQueue(h.GetQueue()), h.GetOwner()
	d.Labels = append(d.Labels, p.required[d.Queue]...)
	class := p.sched.Class(d)
	for _, use := range d.Uses {
		p.setLimit(v, use)
	}
	return policy{
		class:            class,
		demand:           d,
		priority:         priorityOf(h, t),
		queueTimeout:     ms(t.GetQueueTimeoutMs()),
		requeues:         t.GetQueueTimeoutRequeues(),
		startTimeout:     ms(t.GetStartTimeoutMs()),
		runTimeout:       ms(t.GetTimeoutMs()),
		heartbeatTimeout: ms(t.GetHeartbeatTimeoutMs()),
		killGrace:        ms(t.GetKillGraceMs()),
		reuse:            ms(t.GetReuseMs()),
		rules:            rules(t.GetRetry()),
	}
}

// classOf returns the class of a task. An array with max_parallel has a class
// of its own until its job ends.
func (p *policyTable) classOf(v *fsm.State, ref fsm.TaskRef, x *policy) scheduler.ClassID {
	a, ok := v.ArrayTask(ref)
	if !ok || a.MaxParallel == 0 {
		return x.class
	}
	j := p.jobs[ref.Job]
	if j == nil {
		return x.class // the job has ended: none of its tasks starts any more
	}
	id, known := j.limited[a.First]
	if !known {
		d := x.demand
		d.Limit, d.Group = a.MaxParallel, scheduler.TaskRef{Job: uint64(ref.Job), Index: a.First}
		if j.limited == nil {
			j.limited = make(map[uint32]scheduler.ClassID)
		}
		id = p.sched.Class(d)
		j.limited[a.First] = id
	}
	return id
}

// classInstead returns the class of an attempt whose job has moved, in place of a former one.
func (p *policyTable) classInstead(v *fsm.State, ref fsm.TaskRef, former scheduler.ClassID) scheduler.ClassID {
	return p.sched.Alternative(p.classOf(v, ref, p.of(v, ref)), p.sched.AlternativeOf(former))
}

// queueOf returns the name of the queue of a job that has tasks in the scheduler.
func (p *policyTable) queueOf(id fsm.JobID) string {
	if j := p.jobs[id]; j != nil && len(j.list) > 0 {
		return cmp.Or(j.list[0].demand.Queue, fsm.DefaultQueue)
	}
	return fsm.DefaultQueue
}

// classOfAttempt returns the class of an attempt: that of the alternative which it takes. The
// state has only that of the last attempt of a task. An earlier one, which a worker still
// stops, counts as if it took the first alternative.
func (p *policyTable) classOfAttempt(v *fsm.State, a fsm.AttemptRef, x *policy) scheduler.ClassID {
	class := p.classOf(v, a.TaskRef, x)
	if len(x.demand.Alternatives) == 0 {
		return class
	}
	if t, _ := v.Task(a.TaskRef); t.Attempt == a.Attempt {
		return p.sched.Alternative(class, t.Alternative)
	}
	return class
}

// remove removes a job that has ended, and its classes.
func (p *policyTable) remove(id fsm.JobID) {
	if j := p.jobs[id]; j != nil {
		delete(p.jobs, id)
		p.retire(j)
	}
}

// retire ends the uses of the classes of a job.
func (p *policyTable) retire(j *jobPolicies) {
	for i := range j.list {
		p.sched.Retire(j.list[i].class)
	}
	for _, first := range slices.Sorted(maps.Keys(j.limited)) {
		p.sched.Retire(j.limited[first])
	}
}

func demand(p *dtaskv1.TaskPolicy) scheduler.Demand {
	d := scheduler.Demand{Type: fsm.RequiredType(p), NoPrefetch: p.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}
	d.Resources = quantities(p.GetResources())
	for _, list := range p.GetAlternatives() {
		d.Alternatives = append(d.Alternatives, quantities(list.GetResources()))
	}
	for _, name := range slices.Sorted(maps.Keys(p.GetRequire())) {
		d.Labels = append(d.Labels, scheduler.Label{Name: name, Value: p.GetRequire()[name]})
	}
	d.Rules, d.Prefer, d.Place = labelRules(p.GetRules()), labelRules(p.GetPrefer()), strategies[p.GetPlace()]
	for _, name := range p.GetSecrets() {
		d.Labels = append(d.Labels, secretLabel(name))
	}
	d.Uses, d.Affinity = p.GetUses(), p.GetAffinity()
	d.Preemptible = p.GetPreemptible() && !d.NoPrefetch && !p.GetFinally()
	return d
}

func quantities(resources map[string]int64) (list []scheduler.Quantity) {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		list = append(list, scheduler.Quantity{Name: name, Amount: resources[name]})
	}
	return list
}

// strategies has those of the protocol.
var strategies = map[dtaskv1.PlacementStrategy]scheduler.Strategy{
	dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_UNSPECIFIED: scheduler.Spread,
	dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD:      scheduler.Spread,
	dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK:        scheduler.Pack,
	dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_RANDOM:      scheduler.Random,
}

func labelRules(list []*dtaskv1.LabelRule) (rules []scheduler.LabelRule) {
	for _, r := range list {
		rules = append(rules, scheduler.LabelRule{Name: r.GetName(), Values: r.GetValues(), Not: r.GetNot()})
	}
	return rules
}

// secretLabel returns the label of a worker that has a secret. The names of other labels
// have no colon, so no task can require it in another way.
func secretLabel(name string) scheduler.Label {
	return scheduler.Label{Name: fsm.SecretLabel + ":", Value: name}
}

// schedulerNamespace returns the name of a namespace in the scheduler: a demand in the
// default one has an empty name, as in the header of a job.
func schedulerNamespace(name string) string {
	if name == fsm.DefaultNamespace {
		return ""
	}
	return name
}

// rules parses a retry policy. Its classes were checked when the job was
// submitted; a class that this version doesn't know matches nothing.
func rules(p *dtaskv1.RetryPolicy) backoff.Rules {
	classes := func(texts []string) []backoff.Class {
		var list []backoff.Class
		for _, t := range texts {
			if c, err := backoff.ParseClass(t); err == nil {
				list = append(list, c)
			}
		}
		return list
	}
	return backoff.Rules{
		Max:    int(p.GetMax()),
		On:     classes(p.GetOn()),
		Except: classes(p.GetExcept()),
		Backoff: backoff.Policy{
			Initial:    ms(p.GetInitialMs()),
			Max:        ms(p.GetMaxDelayMs()),
			Multiplier: float64(p.GetMultiplierPermille()) / 1000,
			Jitter:     p.GetJitter(),
		},
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
