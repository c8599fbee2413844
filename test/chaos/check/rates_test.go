package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

const ms = time.Millisecond

// under makes a record of jobs of which each task lasts a millisecond. Each job is submitted at
// a time and has tasks that start at times. They use a limit of one per second, two at once.
func under(use string, jobs ...[]time.Duration) (r Record) {
	for i, at := range jobs {
		id := string(rune('1' + i))
		p := Plan{Key: id, Body: id, Name: id, Uses: []string{use}, Rate: &Rate{Starts: 60, Period: time.Minute, Burst: 2}}
		f := Final{ID: id, Name: id, State: "completed", Completed: len(at) - 1}
		for k, start := range at[1:] {
			task := string(rune('a' + k))
			p.Tasks = append(p.Tasks, PlannedTask{ID: task, Retries: 9})
			f.Tasks = append(f.Tasks, FinalTask{ID: task, State: "completed", Attempt: 1, Worker: "w1"})
			r.Lines = append(r.Lines, lines(id, task, "w1", start, start+ms)...)
		}
		r.Plans, r.Finals = append(r.Plans, p), append(r.Finals, f)
		r.Calls = append(r.Calls, history.Call{
			N: i + 1, Kind: history.Submit, Key: id, Body: id, Job: id, Call: at[0], Return: at[0] + ms, Verdict: history.OK, Tasks: len(p.Tasks),
		})
	}
	return r
}

// lines are those of the first attempt of a task.
func lines(job, task, worker string, start, end time.Duration) []ledger.Line {
	line := ledger.Line{Kind: ledger.Start, Job: job, Task: task, Attempt: 1, Token: 1, Worker: worker, Pid: 1, At: start}
	last := line
	last.Kind, last.At = ledger.End, end
	return []ledger.Line{line, last}
}

func TestMoreStartsThanARateAllowsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record Record
		spoil  func(*Record)
		faults int
	}{
		"the burst at once":                  {under("api", []time.Duration{0, 10 * ms, 11 * ms}), nil, 0},
		"one more than the burst":            {under("api", []time.Duration{0, 10 * ms, 11 * ms, 12 * ms}), nil, 1},
		"one more at the end of a period":    {under("api", []time.Duration{0, 10 * ms, 11 * ms, 800 * ms, 1800 * ms}), nil, 0},
		"one more before the period ends":    {under("api", []time.Duration{0, 10 * ms, 11 * ms, 799 * ms}), nil, 1},
		"a new leader that begins full":      {under("api", []time.Duration{0, 10 * ms, 11 * ms, 1500 * ms, 1501 * ms}), nil, 1},
		"one that does so in the long run":   {under("api", []time.Duration{0, 10 * ms, 11 * ms, 2 * time.Second, 3 * time.Second, 3001 * ms, 3002 * ms}), nil, 1},
		"idle time fills no more than that":  {under("api", []time.Duration{0, 10 * ms}, []time.Duration{time.Minute, 60010 * ms, 60011 * ms, 60012 * ms}), nil, 1},
		"jobs that wait long start together": {under("api", []time.Duration{0, 60010 * ms, 60011 * ms, 60012 * ms}), nil, 0}, // they may have been assigned before
		"no limit":                           {under("api", []time.Duration{0, 10 * ms, 11 * ms, 12 * ms}), func(r *Record) { r.Plans[0].Uses = nil }, 0},
		"of two keys": {under("api/a", []time.Duration{0, 10 * ms, 11 * ms}, []time.Duration{0, 10 * ms, 11 * ms}), func(r *Record) {
			r.Plans[1].Uses = []string{"api/b"}
		}, 0},
		"of one key, in two jobs": {under("api/a", []time.Duration{0, 10 * ms, 11 * ms}, []time.Duration{0, 10 * ms}), nil, 1},
		"a task that became ready late": {under("api", []time.Duration{0, 10 * ms, 60010 * ms, 60011 * ms, 60012 * ms}), func(r *Record) {
			for i := 1; i < 4; i++ { // after a, which ends shortly before
				r.Plans[0].Tasks[i].After = []string{"a"}
			}
			r.Lines[1].At = time.Minute
		}, 1},
		"the submission had an unknown outcome": {under("api", []time.Duration{0, 10 * ms, 11 * ms, 12 * ms}), func(r *Record) { r.Calls[0].Verdict = history.Unknown }, 1},
		"another attempt": {under("api", []time.Duration{0, 10 * ms, 11 * ms}), func(r *Record) {
			r.Lines[3].Exit = 1
			again := lines("1", "b", "w1", 20*ms, 21*ms)
			again[0].Attempt, again[0].Token, again[1].Attempt, again[1].Token = 2, 2, 2, 2
			r.Lines = append(r.Lines, again...)
			r.Finals[0].Tasks[1].Attempt = 2
		}, 1},
		"an attempt that was executed twice was assigned once": {under("api", []time.Duration{0, 10 * ms, 11 * ms}), func(r *Record) {
			r.Lines = append(r.Lines, lines("1", "b", "w2", 20*ms, 21*ms)...)
		}, 0},
	} {
		r := c.record
		if c.spoil != nil {
			c.spoil(&r)
		}
		var got []Fault
		for _, f := range Account(r) {
			if strings.HasPrefix(f.Where, "limit ") {
				got = append(got, f)
			}
		}
		if len(got) != c.faults || slices.ContainsFunc(got, func(f Fault) bool { return f.Kind != Unexpected }) {
			t.Errorf("%s: got faults %v, want %d", name, got, c.faults)
		}
	}
}

// The window of comparisons is bounded, and moves with each assignment.
func TestTheLastStartsOfALongRunAreComparedWithTheRate(t *testing.T) {
	t.Parallel()
	var jobs [][]time.Duration
	for i := range 3 * maxRateWindow {
		at := time.Duration(i) * time.Second
		jobs = append(jobs, []time.Duration{at, at + 10*ms})
	}
	end := time.Duration(len(jobs)) * time.Second
	r := under("api", jobs...)
	if faults := Account(r); len(faults) > 0 {
		t.Errorf("a good run: got faults %v", faults)
	}
	if got, want := CountScheduled(r), (Scheduled{Rated: len(jobs)}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if faults := Account(under("api", append(jobs, []time.Duration{end, end + 10*ms, end + 11*ms, end + 12*ms, end + 13*ms})...)); len(faults) != 1 {
		t.Errorf("too many at the end: got faults %v, want one", faults)
	}
}
