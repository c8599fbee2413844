package check

import (
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// gateStory is a valid record of four jobs: 7 and 8 share a concurrency key, 9 starts later,
// and 10 has expired. Tests corrupt it.
func gateStory() Record {
	var r Record
	ms := clockGrain / 2
	job := func(id, name string, g *Gate, from, to int) {
		r.Plans = append(r.Plans, Plan{Key: name, Body: name, Name: name, Tasks: []PlannedTask{{ID: "t"}}, Gate: g})
		r.Calls = append(r.Calls, history.Call{
			N: len(r.Calls) + 1, Kind: history.Submit, Key: name, Body: name, Job: id, Call: 10 * ms, Return: 20 * ms, Verdict: history.OK, Tasks: 1,
		})
		f := Final{ID: id, Name: name, State: "completed", Completed: 1, Tasks: []FinalTask{{ID: "t", State: "completed", Attempt: 1, Worker: "w" + id}}}
		if to == 0 {
			f.State, f.Completed, f.Tasks[0] = "cancelled", 0, FinalTask{ID: "t", State: "cancelled", Error: "expired: no task started within 5ms"}
		} else {
			r.Lines = append(r.Lines, ran(id, from, to)...)
		}
		r.Finals = append(r.Finals, f)
	}
	job("7", "first", &Gate{Key: "k", Overlap: "wait"}, 30, 40)
	job("8", "second", &Gate{Key: "k", Overlap: "replace"}, 50, 60)
	job("9", "later", &Gate{After: 100 * ms}, 110, 120)
	job("10", "expired", &Gate{Key: "k", Overlap: "wait-all", Expires: 5 * ms}, 0, 0)
	return r
}

func TestAGoodRecordOfGatesHasNoFaults(t *testing.T) {
	t.Parallel()
	r := gateStory()
	for _, f := range slices.Concat(Account(r), Linear(r, "")) {
		t.Error(f)
	}
	if got, want := CountGates(r), (Gates{Keys: 1, Waited: 1, Expired: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAJobMayBeReplacedByALaterOneWithItsKey(t *testing.T) {
	t.Parallel()
	replaced := func(by string) Record {
		r := gateStory()
		f := &r.Finals[0]
		f.State, f.Completed = "cancelled", 0
		f.Tasks[0] = FinalTask{ID: "t", State: "cancelled", Attempt: 1, Worker: "w7", Error: "replaced by job " + by + ", which has the same concurrency key"}
		r.Lines[1].Exit = 143
		return r
	}
	for by, want := range map[string]int{
		"8":  0,
		"9":  1, // it has another key
		"10": 1, // its rule is another one
		"11": 1, // it does not exist
	} {
		if faults := Account(replaced(by)); len(faults) != want {
			t.Errorf("replaced by job %s: got faults %v, want %d", by, faults, want)
		}
	}
}

func TestEachPlantedFaultOfAGateIsFound(t *testing.T) {
	t.Parallel()
	ms := clockGrain / 2
	wrong := ledger.Harm{Worker: clocksHarmed, From: 60 * ms, Until: 70 * ms, Cause: "clock"}
	for name, c := range map[string]struct {
		want  []Kind
		spoil func(*Record)
	}{
		"two jobs with one key run":         {[]Kind{Unexpected}, func(r *Record) { r.Lines[1].At = 55 * ms }},
		"the worker of another job stopped": {[]Kind{Unexpected}, func(r *Record) { r.Lines[1].At = 55 * ms; r.Harms = []ledger.Harm{stopOf("w9")} }},
		"one of them is on a stopped worker": {nil, func(r *Record) {
			r.Lines[1].At = 55 * ms
			r.Harms = []ledger.Harm{stopOf("w7")}
		}},
		"the worker was cut off before the other started": {nil, func(r *Record) {
			r.Lines[1].At = 55 * ms
			r.Harms = []ledger.Harm{{Worker: "w7", From: 20 * ms, Until: 60 * ms, Cause: "workers-cut-off"}}
		}},
		"the worker was cut off afterwards": {[]Kind{Unexpected}, func(r *Record) {
			r.Lines[1].At = 55 * ms
			r.Harms = []ledger.Harm{{Worker: "w7", From: 54 * ms, Until: 60 * ms, Cause: "workers-cut-off"}}
		}},
		"the worker of the other job was cut off": {[]Kind{Unexpected}, func(r *Record) {
			r.Lines[1].At = 55 * ms
			r.Harms = []ledger.Harm{{Worker: "w9", From: 20 * ms, Until: 60 * ms, Cause: "workers-cut-off"}}
		}},
		"two tasks of one job run": {nil, func(r *Record) {
			other := slices.Clone(r.Lines[:2])
			other[0].Task, other[1].Task = "u", "u"
			r.Lines = append(r.Lines, other...)
			r.Plans[0].Tasks = append(r.Plans[0].Tasks, PlannedTask{ID: "u"})
			r.Finals[0].Tasks = append(r.Finals[0].Tasks, FinalTask{ID: "u", State: "completed", Attempt: 1, Worker: "w7"})
			r.Finals[0].Completed = 2
		}},
		"a job starts early":                  {[]Kind{Disorder}, func(r *Record) { r.Lines[4].At = 107 * ms }},
		"a job starts early by a wrong clock": {nil, func(r *Record) { r.Lines[4].At = 107 * ms; r.Harms = []ledger.Harm{wrong} }},
		"the clock is corrected before": {[]Kind{Disorder}, func(r *Record) {
			r.Lines[4].At = 107 * ms
			r.Harms = []ledger.Harm{{Worker: clocksHarmed, From: 1, Until: 2}}
		}},
		"an expired job was executed":          {[]Kind{Unexpected}, func(r *Record) { r.Lines = append(r.Lines, ran("10", 20, 25)...); r.Finals[3].Tasks[0].Attempt = 1 }},
		"a job without that expires":           {[]Kind{Lost}, func(r *Record) { r.Plans[3].Gate.Expires = 0 }},
		"an expired job is shown as completed": {[]Kind{Unexpected}, func(r *Record) { r.Finals[3].State = "completed" }},
		"a job is cancelled without a reason":  {[]Kind{Lost}, func(r *Record) { r.Finals[3].Tasks[0].Error = "" }},
	} {
		r := gateStory()
		c.spoil(&r)
		var got []Kind
		faults := Account(r)
		for _, f := range faults {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, faults, c.want)
		}
	}
}

// stopOf is a stop of a worker while the second job starts.
func stopOf(worker string) ledger.Harm {
	ms := clockGrain / 2
	return ledger.Harm{Worker: worker, From: 35 * ms, Until: 58 * ms, Cause: ledger.Stopped}
}

// ran are the lines of an execution.
func ran(job string, from, to int) []ledger.Line {
	ms := clockGrain / 2
	line := ledger.Line{Kind: ledger.Start, Job: job, Task: "t", Attempt: 1, Token: 1, Worker: "w" + job, Pid: 1, At: ms * time.Duration(from)}
	end := line
	end.Kind, end.At = ledger.End, ms*time.Duration(to)
	return []ledger.Line{line, end}
}
