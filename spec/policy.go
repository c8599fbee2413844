package spec

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Built-in defaults.
const (
	defaultTimeout    = 60 * time.Minute
	defaultRetries    = 3
	defaultInitial    = time.Second
	defaultMultiplier = 2000
	defaultMaxDelay   = 5 * time.Minute
	defaultKillGrace  = 5 * time.Second
	defaultReuse      = 24 * time.Hour
)

// policy collects the fields of a [dtaskv1.TaskPolicy] from job.defaults and
// the task. Copies share maps and lists, which are replaced, never changed.
type policy struct {
	kind             string
	priority         dtaskv1.Priority
	env              map[string]string
	shell            []string
	cwd              string  // of commands; it becomes a part of their bodies
	umask            *uint32 // nil = 022
	timeout          int64   // ms; 0 = unset
	queueTimeout     queueTimeout
	heartbeatTimeout int64 // ms; 0 = none
	startTimeout     int64 // ms; 0 = the leader's default
	expect           int64 // ms; 0 = unknown
	killGrace        int64 // ms
	retry            retry
	execution        dtaskv1.Execution
	resources        resources
	require          map[string]labelRule
	prefer           map[string]labelRule
	place            dtaskv1.PlacementStrategy
	affinity         string // empty: none
	preemptible      bool
	secrets          []string
	uses             []string
	finally          bool
	reuse            int64 // ms; 0 = not pure

	jobEnv map[string]string // for the common size limit
	own    bool              // a field was set after this was copied
}

type retry struct {
	said     bool // a field was set
	maxSaid  bool
	max      uint32
	initial  int64 // ms
	permille uint32
	maxDelay int64 // ms; 0 = unset
	jitter   bool
	on       []string
	except   []string
}

// builtIn returns the policy of a task without policy fields.
func builtIn() policy {
	return policy{
		killGrace: defaultKillGrace.Milliseconds(),
		execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE,
		retry:     retry{initial: defaultInitial.Milliseconds(), permille: defaultMultiplier, jitter: true},
	}
}

// readPriority reads a priority: its name, or its number.
func readPriority(r *reader, n *yaml.Node) (is dtaskv1.Priority, ok bool) {
	s := n.Value
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
		if s, ok = r.text(n); !ok {
			return is, false
		}
	}
	is, p := priority(s)
	return is, r.holds(n, p)
}

var policyFields = fields[*policy]{
	"priority": func(r *reader, p *policy, e entry) {
		if v, ok := readPriority(r, e.value); ok {
			p.priority = v
		}
	},
	"env": func(r *reader, p *policy, e entry) {
		p.env = r.env(e, p.env)
		r.holds(e.value, envSizeProblem(p.jobEnv, p.env))
	},
	"shell": func(r *reader, p *policy, e entry) {
		if v, ok := r.texts(e.value, `shell: [bash, -euo, pipefail, -c]`, plainText); ok && r.holds(e.value, shellProblem(v)) {
			p.shell = v
		}
	},
	"cwd": func(r *reader, p *policy, e entry) {
		if v, ok := r.checked(e.value, absoluteProblem); ok {
			p.cwd = v
		}
	},
	"umask": func(r *reader, p *policy, e entry) {
		if v, ok := r.umask(e.value); ok {
			p.umask = v
		}
	},
	"timeout": func(r *reader, p *policy, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			p.timeout = v
		}
	},
	"queue_timeout": func(r *reader, p *policy, e entry) {
		if v, ok := r.queueTimeout(e.value); ok {
			p.queueTimeout = v
		}
	},
	"start_timeout": func(r *reader, p *policy, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			p.startTimeout = v
		}
	},
	"expect": func(r *reader, p *policy, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			p.expect = v
		}
	},
	"heartbeat_timeout": func(r *reader, p *policy, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			p.heartbeatTimeout = v
		}
	},
	"kill_grace": func(r *reader, p *policy, e entry) {
		if v, ok := r.duration(e.value, true); ok {
			p.killGrace = v
		}
	},
	"execution": func(r *reader, p *policy, e entry) {
		if v, ok := readKeyword(r, e.value, executions); ok {
			p.execution = v
		}
	},
	"retry": func(r *reader, p *policy, e entry) {
		p.retry.said = true
		retryFields.read(r, &p.retry, r.entries(e.value, "retry: {max: 3}"), func(u entry) {
			r.unknown(u, retryFields.names, "")
		})
		if t := &p.retry; t.maxDelay > 0 && t.maxDelay < t.initial {
			r.fault(e.value, "max_delay must be at least initial", "increase max_delay")
		}
	},
	"resources": func(r *reader, p *policy, e entry) { p.resources = r.resources(e.value, p.resources) },
	"require": func(r *reader, p *policy, e entry) {
		p.require = r.labelRules(e, p.require)
	},
	"prefer": func(r *reader, p *policy, e entry) {
		p.prefer = r.labelRules(e, p.prefer)
	},
	"place": func(r *reader, p *policy, e entry) {
		if v, ok := readKeyword(r, e.value, strategies); ok {
			p.place = v
		}
	},
	"affinity": func(r *reader, p *policy, e entry) {
		if v, ok := r.checked(e.value, affinityProblem); ok {
			p.affinity = v
		}
	},
	"preemptible": func(r *reader, p *policy, e entry) {
		if v, ok := r.truth(e.value); ok {
			p.preemptible = v
		}
	},
	"uses": func(r *reader, p *policy, e entry) {
		if v, ok := r.uses(e.value); ok {
			p.uses = v
		}
	},
	"secrets": func(r *reader, p *policy, e entry) {
		if v, ok := r.secrets(e.value); ok {
			p.secrets = v
		}
	},
}

var retryFields = fields[*retry]{
	"max": func(r *reader, t *retry, e entry) {
		if v, ok := r.number(e.value, 0, MaxRetries); ok {
			t.max, t.maxSaid = uint32(v), true
		}
	},
	"initial": func(r *reader, t *retry, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			t.initial = v
		}
	},
	"multiplier": func(r *reader, t *retry, e entry) {
		if v, ok := r.decimal(e.value, 1000, maxMultiplier); ok {
			t.permille = uint32(v)
		}
	},
	"max_delay": func(r *reader, t *retry, e entry) {
		if v, ok := r.duration(e.value, false); ok {
			t.maxDelay = v
		}
	},
	"jitter": func(r *reader, t *retry, e entry) {
		if v, ok := r.truth(e.value); ok {
			t.jitter = v
		}
	},
	"on":     func(r *reader, t *retry, e entry) { t.on = r.classes(e, t.on) },
	"except": func(r *reader, t *retry, e entry) { t.except = r.classes(e, t.except) },
}

func (r *reader) classes(e entry, before []string) []string {
	v, ok := r.texts(e.value, e.key+`: ["exit:2", timeout]`, classProblem)
	if !ok || !r.holds(e.value, classCountProblem(len(v))) {
		return before
	}
	return v
}

func (r *reader) env(e entry, base map[string]string) map[string]string {
	return dictionary(r, e.value, base, "env: {LANG: C}", envNameProblem, func(v entry) (string, bool) { return r.text(v.value) })
}

// plainEnv reports expressions in an environment that tasks with and without an array
// share.
func (r *reader) plainEnv(e entry, env map[string]string) {
	for _, name := range namesOf(env) {
		if p := plainText(env[name]); p.bad() {
			r.enter(name)
			r.holds(e.value, p)
			r.leave()
		}
	}
}

func (r *reader) labels(e entry, base map[string]string, example string) map[string]string {
	out := dictionary(r, e.value, base, e.key+": "+example, labelNameProblem, func(v entry) (string, bool) {
		s, ok := r.checked(v.value, labelValueProblem)
		return s, ok && r.holds(v.value, plainText(s))
	})
	r.holds(e.value, labelsProblem(len(out)))
	return out
}

// proto returns the policy with defaults for unset fields.
func (p *policy) proto(d TaskDefaults, filled bool) *dtaskv1.TaskPolicy {
	out := &dtaskv1.TaskPolicy{
		Type: p.kind, Priority: p.priority, Env: p.env,
		TimeoutMs: p.timeout, HeartbeatTimeoutMs: p.heartbeatTimeout,
		QueueTimeoutMs: p.queueTimeout.after, QueueTimeoutRequeues: p.queueTimeout.requeues,
		Execution: p.execution, KillGraceMs: p.killGrace,
		Finally: p.finally, ReuseMs: p.reuse, StartTimeoutMs: p.startTimeout, Shell: p.shell, Umask: p.umask, Secrets: p.secrets, Uses: p.uses,
		ExpectMs: p.expect, Preemptible: p.preemptible,
	}
	out.Resources, out.Alternatives = p.resources.proto()
	out.Require, out.Rules = protoRules(p.require)
	out.Prefer, out.Place, out.Affinity = protoPreferences(p.prefer), p.place, p.affinity
	if t := &p.retry; t.said {
		out.Retry = &dtaskv1.RetryPolicy{
			Max: t.max, InitialMs: t.initial, MultiplierPermille: t.permille,
			MaxDelayMs: t.maxDelay, Jitter: t.jitter, On: t.on, Except: t.except,
		}
		if !t.maxSaid {
			out.Retry.Max = d.retries()
		}
		if t.maxDelay == 0 {
			out.Retry.MaxDelayMs = max(defaultMaxDelay.Milliseconds(), t.initial)
		}
	}
	if filled {
		fillPolicy(out, d)
	}
	return out
}

func labelsProblem(n int) problem {
	if n <= MaxLabels {
		return problem{}
	}
	return problem{fmt.Sprintf("has %d entries", n), fmt.Sprintf("at most %d", MaxLabels)}
}

func classCountProblem(n int) problem {
	if n <= MaxClasses {
		return problem{}
	}
	return problem{fmt.Sprintf("lists %d classes", n), fmt.Sprintf("at most %d; ranges like exit:64-78 save some", MaxClasses)}
}
