package check

import (
	"testing"

	"github.com/dtask/dtask/test/chaos/history"
)

// explained is a story with a plan and with explanations of both tasks.
func explained() Record {
	r := story()
	r.Calls = append(
		r.Calls,
		history.Call{N: 5, Client: 9, Kind: history.Explain, Job: "7", Task: "b", Call: 22, Return: 26, Verdict: history.OK, Answered: "7/b", State: "blocked", Codes: []string{"waits_for_task"}},
		history.Call{N: 6, Client: 9, Kind: history.Explain, Job: "7", Task: "a", Call: 96, Return: 97, Verdict: history.OK, Answered: "7/a", State: "completed", Codes: []string{"completed"}, Settled: true},
		history.Call{N: 7, Client: 9, Kind: history.Plan, Key: "fixed", Call: 98, Return: 99, Verdict: history.OK, Plan: "a, b", Want: "a, b"},
		history.Call{N: 8, Client: 9, Kind: history.Plan, Key: "fixed", Call: 98, Return: 99, Verdict: history.Fail, Reason: history.Unavailable, Error: "no leader", Want: "a, b"},
		history.Call{N: 9, Client: 9, Kind: history.Explain, Job: "7", Task: "a", Call: 99, Return: history.Never, Verdict: history.Unknown}, // the suite ended
	)
	return r
}

func TestTrueAnswersAreNoFaults(t *testing.T) {
	t.Parallel()
	r := explained()
	for _, f := range append(Account(r), Linear(r, "")...) {
		t.Error(f)
	}
	if got, want := CountAnswers(r), (Answers{Explained: 2, Planned: 1, Unavailable: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEachWrongAnswerIsFound(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(r *Record){
		"an answer about another task":               func(r *Record) { r.Calls[4].Answered = "7/a" },
		"an answer about a task that does not exist": func(r *Record) { r.Calls[4].Task, r.Calls[4].Answered = "c", "7/c" },
		"an answer about a job that does not exist":  func(r *Record) { r.Calls[4].Job, r.Calls[4].Answered = "8", "8/b" },
		"no reason":           func(r *Record) { r.Calls[4].Codes = nil },
		"an ended task waits": func(r *Record) { r.Calls[5].State, r.Calls[5].Codes = "pending", []string{"no_free_capacity"} },
		"the reason of a task that waits for an end":     func(r *Record) { r.Calls[5].Codes = []string{"no_free_capacity"} },
		"the reason of an ended task for one that waits": func(r *Record) { r.Calls[4].Codes = []string{"completed"} },
		"another end than the task has":                  func(r *Record) { r.Calls[4].State, r.Calls[4].Codes = "failed", []string{"failed"} },
		"a plan that differs":                            func(r *Record) { r.Calls[6].Plan = "b, a" },
		"an empty plan":                                  func(r *Record) { r.Calls[6].Plan, r.Calls[6].Want = "", "" },
		"a task that exists is not found": func(r *Record) {
			r.Calls[4].Verdict, r.Calls[4].Reason, r.Calls[4].Error = history.Fail, history.NotFound, "no task b"
		},
		"an unknown outcome of what has no effect": func(r *Record) { r.Calls[7].Verdict = history.Unknown },
	} {
		r := explained()
		spoil(&r)
		if faults := Account(r); len(faults) != 1 || faults[0].Kind != Wrong {
			t.Errorf("%s: got %v, want one wrong answer", name, faults)
		}
	}
}
