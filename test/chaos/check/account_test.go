package check

import (
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// A story is a valid record of one job with two tasks, b after a. Tests corrupt it.
func story() Record {
	line := func(kind ledger.Kind, task string, at time.Duration) ledger.Line {
		return ledger.Line{Kind: kind, Job: "7", Task: task, Attempt: 1, Token: 1, Worker: "w1", Pid: 1, At: at}
	}
	return Record{
		Plans: []Plan{{Key: "k", Body: "x", Name: "j", Tasks: []PlannedTask{{ID: "a"}, {ID: "b", After: []string{"a"}}}}},
		Calls: []history.Call{
			{N: 1, Kind: history.Submit, Key: "k", Body: "x", Job: "7", Call: 10, Return: 20, Verdict: history.OK, Tasks: 2},
			{N: 2, Kind: history.Read, Job: "7", Call: 21, Return: 25, Verdict: history.OK, State: "running"},
			{N: 3, Kind: history.Read, Job: "7", Task: "a", Call: 42, Return: 43, Verdict: history.OK, State: "completed", Attempt: 1},
			{N: 4, Kind: history.Read, Job: "7", Call: 90, Return: 95, Verdict: history.OK, State: "completed", Count: 2},
		},
		Finals: []Final{{ID: "7", Name: "j", State: "completed", Completed: 2, Tasks: []FinalTask{
			{ID: "a", State: "completed", Attempt: 1, Worker: "w1"}, {ID: "b", State: "aggregated", Attempt: 1, Worker: "w1"},
		}}},
		Lines: []ledger.Line{
			line(ledger.Start, "a", 30), line(ledger.End, "a", 40),
			line(ledger.Start, "b", 50), line(ledger.End, "b", 60),
		},
	}
}

func TestAGoodRecordHasNoFaults(t *testing.T) {
	t.Parallel()
	r := story()
	for _, f := range slices.Concat(Account(r), Linear(r, "")) {
		t.Error(f)
	}
}

// again plants a second attempt of b, and a harm.
func again(h ledger.Harm) func(*Record) {
	return func(r *Record) {
		start, end := r.Lines[2], r.Lines[3]
		start.Attempt, start.Token, start.Pid, start.At = 2, 2, 2, 70
		end.Attempt, end.Token, end.Pid, end.At = 2, 2, 2, 80
		r.Lines = append(r.Lines, start, end)
		r.Finals[0].Tasks[1].Attempt = 2
		r.Harms = []ledger.Harm{h}
	}
}

func TestAnExecutionIsRepeatedBecauseOfAHarm(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]ledger.Harm{
		"its worker was killed":           {Worker: "w1", From: 55, Until: 65},
		"its worker is stopped for good":  {Worker: "w1", From: 70},
		"all workers were disconnected":   {From: 45, Until: 50},
		"the worker of the first attempt": {Worker: "w1", From: 1, Until: 100},
	} {
		r := story()
		again(h)(&r)
		for _, f := range Account(r) {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestEachPlantedFaultIsFound(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		want  Kind
		spoil func(*Record)
	}{
		"an acknowledged job is missing":           {Lost, func(r *Record) { r.Finals, r.Lines = nil, nil }},
		"a job does not end":                       {Lost, func(r *Record) { r.Finals[0].State = "running" }},
		"a task does not end":                      {Lost, func(r *Record) { r.Finals[0].Tasks[1].State = "assigned"; r.Finals[0].Completed = 1 }},
		"a task is missing":                        {Lost, func(r *Record) { r.Finals[0].Tasks = r.Finals[0].Tasks[:1] }},
		"a task completed without being executed":  {Lost, func(r *Record) { r.Lines = r.Lines[:2] }},
		"a completion by a command that failed":    {Lost, func(r *Record) { r.Lines[3].Exit = 1 }},
		"a completion by another attempt":          {Lost, func(r *Record) { r.Finals[0].Tasks[1].Attempt = 2 }},
		"a completion is not counted":              {Lost, func(r *Record) { r.Finals[0].Completed = 1 }},
		"a task failed that should have completed": {Lost, func(r *Record) { r.Finals[0].Tasks[1].State = "failed"; r.Finals[0].Completed = 1 }},
		"a completion is counted twice":            {Duplicated, func(r *Record) { r.Finals[0].Completed = 3 }},
		"executed again without a cause":           {Restarted, again(ledger.Harm{Worker: "w2", From: 1})},
		"executed again after a harm had ended":    {Restarted, again(ledger.Harm{Worker: "w1", From: 1, Until: 49})},
		"executed again before a harm":             {Restarted, again(ledger.Harm{Worker: "w1", From: 71})},
		"executed again for another one's harm":    {Restarted, again(ledger.Harm{Worker: "w1", Execution: "other"})},
		"one submission made two jobs": {Duplicated, func(r *Record) {
			other := r.Finals[0]
			other.ID = "8"
			r.Finals = append(r.Finals, other)
		}},
		"one key was acknowledged as two jobs": {Duplicated, func(r *Record) {
			c := r.Calls[0]
			c.Job = "8"
			r.Calls = append(r.Calls, c)
		}},
		"an attempt was executed twice": {Duplicated, func(r *Record) {
			again := r.Lines[2]
			again.Pid, again.Worker = 2, "w2"
			r.Lines = append(r.Lines, again)
		}},
		"an at-most-once task was executed twice": {Duplicated, func(r *Record) {
			r.Plans[0].Tasks[0].Once = true
			again := r.Lines[0]
			again.Attempt, again.Token = 0, 0
			r.Lines = append(r.Lines, again)
		}},
		"a job that no client submitted":     {Unexpected, func(r *Record) { r.Plans[0].Name = "other" }},
		"a job whose submission was refused": {Unexpected, func(r *Record) { r.Calls[0].Verdict = history.Fail }},
		"a task completed that should be dead": {Unexpected, func(r *Record) {
			r.Plans[0].Tasks[1].Fails = 3
		}},
		"an execution without a job": {Unexpected, func(r *Record) { r.Lines[3].Job, r.Lines[2].Job = "9", "9" }},
		"an attempt beyond the last": {Unexpected, func(r *Record) {
			more := r.Lines[2]
			more.Attempt, more.Token = 2, 2
			r.Lines = append(r.Lines, more)
		}},
		"a cancelled task that no client cancelled": {Lost, func(r *Record) {
			r.Finals[0].Tasks[1].State = "cancelled"
			r.Finals[0].Completed = 1
		}},
		"a task started before its dependency had ended": {Disorder, func(r *Record) { r.Lines[2].At = 35 }},
		"a token that does not grow": {Backwards, func(r *Record) {
			r.Finals[0].Tasks[0].Attempt = 2
			r.Lines[1].Attempt, r.Lines[1].Token = 2, 1
			lost := r.Lines[0]
			r.Lines[0].Attempt = 2
			lost.Worker = "w2"
			r.Lines = append([]ledger.Line{lost}, r.Lines...)
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := story()
			c.spoil(&r)
			if faults := Account(r); Count(faults, c.want) == 0 {
				t.Errorf("got faults %v, want kind %q", faults, c.want)
			}
		})
	}
}

func TestAllowedHistoriesHaveNoFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*Record){
		"an unknown submission that took no effect": func(r *Record) {
			r.Plans = append(r.Plans, Plan{Key: "other", Name: "other"})
			r.Calls = append(r.Calls, history.Call{Kind: history.Submit, Key: "other", Call: 5, Return: history.Never, Verdict: history.Unknown})
		},
		"an unknown submission that took effect": func(r *Record) {
			r.Calls[0].Verdict, r.Calls[0].Return, r.Calls[0].Job = history.Unknown, history.Never, ""
		},
		"a zombie that starts late": func(r *Record) {
			r.Finals[0].Tasks[1].Attempt = 2
			r.Lines[2].Attempt, r.Lines[2].Token, r.Lines[3].Attempt, r.Lines[3].Token = 2, 2, 2, 2
			zombie := r.Lines[2]
			zombie.Attempt, zombie.Token, zombie.Worker, zombie.At = 1, 1, "w2", 70
			r.Lines = append(r.Lines, zombie)
			r.Harms = []ledger.Harm{{Worker: "w2", From: 45, Until: 65}}
		},
		"a task cancelled by a caller": func(r *Record) {
			r.Calls = append(r.Calls[:3], history.Call{Kind: history.Cancel, Job: "7", Call: 44, Return: 46, Verdict: history.OK})
			r.Finals[0].Tasks[1].State, r.Finals[0].State, r.Finals[0].Completed = "cancelled", "cancelled", 1
			r.Lines = r.Lines[:2]
		},
		"a dependent of a dead task": func(r *Record) {
			r.Plans[0].Tasks[0].Fails = 1
			r.Calls = r.Calls[:2]
			r.Lines = r.Lines[:2]
			r.Lines[1].Exit = 1
			r.Finals[0].State, r.Finals[0].Completed = "failed", 0
			r.Finals[0].Tasks[0].State, r.Finals[0].Tasks[1].State = "dead", "cancelled"
		},
	}
	for name, vary := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := story()
			vary(&r)
			for _, f := range slices.Concat(Account(r), Linear(r, "")) {
				t.Error(f)
			}
		})
	}
}
