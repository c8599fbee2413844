package check

import (
	"slices"
	"testing"
)

func TestRulesOfLabels(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"zone": "a", "os": "linux"}
	for _, c := range []struct {
		rules Rules
		want  bool
	}{
		{nil, true},
		{Rules{"zone": {"a"}}, true},
		{Rules{"zone": {"b"}}, false},
		{Rules{"zone": {"b", "a"}}, true},
		{Rules{"zone": {"b", "c"}}, false},
		{Rules{"zone": {"!a"}}, false},
		{Rules{"zone": {"!b", "!a"}}, false},
		{Rules{"zone": {"!b", "!c"}}, true},
		{Rules{"zone": {"*"}}, true},
		{Rules{"shift": {"*"}}, false},
		{Rules{"shift": {"early"}}, false},
		{Rules{"shift": {"!early"}}, true},
		{Rules{"zone": {"a"}, "os": {"linux", "darwin"}}, true},
		{Rules{"zone": {"a"}, "os": {"darwin"}}, false},
	} {
		if got := c.rules.allow(labels); got != c.want {
			t.Errorf("%v: got %v, want %v", c.rules, got, c.want)
		}
	}
}

func TestPreemptionsOfAllTasksAreCounted(t *testing.T) {
	t.Parallel()
	r := story()
	if n := CountScheduled(r).Preempted; n != 0 {
		t.Errorf("nothing was preempted: got %d", n)
	}
	r.Finals[0].Tasks[0].Preempted, r.Finals[0].Tasks[1].Preempted = 2, 1
	if n := CountScheduled(r).Preempted; n != 3 {
		t.Errorf("got %d preemptions, want 3", n)
	}
}

func TestAnExecutionOnAWorkerWithOtherLabelsIsFound(t *testing.T) {
	t.Parallel()
	early, late := map[string]string{"shift": "early", "zone": "a"}, map[string]string{"shift": "late", "zone": "a"}
	for name, c := range map[string]struct {
		want  []Kind
		spoil func(*Record)
	}{
		"as required":                        {nil, func(r *Record) { r.Plans[0].Tasks[1].Require = Rules{"shift": {"late"}} }},
		"before its worker changed a label":  {[]Kind{Unexpected}, func(r *Record) { r.Plans[0].Tasks[0].Require = Rules{"shift": {"late"}} }},
		"after its worker changed a label":   {[]Kind{Unexpected}, func(r *Record) { r.Plans[0].Tasks[1].Require = Rules{"shift": {"early"}} }},
		"not on the worker that it requires": {[]Kind{Unexpected}, func(r *Record) { r.Plans[0].Tasks[1].Require = Rules{"worker": {"w2"}} }},
		"where the queue requires":           {nil, func(r *Record) { r.Plans[0].Pool = Rules{"zone": {"a"}} }},
		"where the queue forbids, each task": {[]Kind{Unexpected, Unexpected}, func(r *Record) { r.Plans[0].Pool = Rules{"zone": {"b"}} }},
		"where the queue forbids, beside a rule of the task": {[]Kind{Unexpected, Unexpected}, func(r *Record) {
			r.Plans[0].Pool = Rules{"zone": {"b"}}
			r.Plans[0].Tasks[0].Require = Rules{"shift": {"early"}}
		}},
		"by a process without labels": {[]Kind{Unexpected}, func(r *Record) {
			r.Lines[0].Labels = nil
			r.Plans[0].Tasks[0].Require = Rules{"shift": {"*"}}
		}},
	} {
		r := story()
		r.Lines[0].Labels, r.Lines[2].Labels = early, late
		c.spoil(&r)
		var got []Kind
		faults := Account(r)
		for _, f := range faults {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, faults, c.want)
		}
		if n := CountScheduled(r).Placed; n == 0 {
			t.Errorf("%s: nothing was compared", name)
		}
	}
}
