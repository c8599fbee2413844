package check

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/history"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// tickStory is a valid record of a schedule that fires every second, as two reads show it: at
// seconds 1 and 2 it ran, 3 was skipped because the run of 2 was open, 4 was missed with 5,
// and 6 ran. Tests corrupt it.
func tickStory() Record {
	r := Record{
		Plans: []Plan{{Name: "s", Shape: "schedule", Every: time.Second, Tasks: []PlannedTask{{ID: "t"}}, Gate: &Gate{Key: "s", Overlap: "skip"}}},
		Calls: []history.Call{
			{Kind: history.SetSchedule, Schedule: "s", Call: 1, Return: 2, Verdict: history.OK},
			{Kind: history.ReadSchedule, Schedule: "s", Created: 1, Call: 3, Return: 4, Verdict: history.OK},
			readTicks(100, 110, ranAt(1, "1"), ranAt(2, "2")),
			readTicks(200, 210, ranAt(1, "1"), ranAt(2, "2"), history.Tick{At: 3000, Became: history.TickOpen},
				history.Tick{At: 5000, Became: history.TickMissed, Earlier: 1}, ranAt(6, "6")),
		},
	}
	for _, second := range []int{1, 2, 6} {
		r.Finals = append(r.Finals, runOf(second))
		r.Lines = append(r.Lines, ran(strconv.Itoa(second), 10*second, 10*second+5)...)
	}
	r.Calls[3].Wall = 6000
	number(&r)
	return r
}

// runOf is the job of a tick.
func runOf(second int) Final {
	id := strconv.Itoa(second)
	return Final{
		ID: id, Name: "s", State: "completed", Completed: 1, Run: &TickRun{ID: 4, At: 1000 * int64(second)},
		Tasks: []FinalTask{{ID: "t", State: "completed", Attempt: 1, Worker: "w" + id}},
	}
}

func ranAt(second int64, job string) history.Tick {
	return history.Tick{At: 1000 * second, Became: history.TickRan, Job: job}
}

func readTicks(from, to time.Duration, ticks ...history.Tick) history.Call {
	return history.Call{Kind: history.ReadSchedule, Schedule: "s", Created: 1, Call: from, Return: to, Verdict: history.OK, Ticks: ticks}
}

// number numbers the calls of a record.
func number(r *Record) {
	for i := range r.Calls {
		r.Calls[i].N = i + 1
	}
}

func TestAGoodRecordOfAScheduleHasNoFaults(t *testing.T) {
	t.Parallel()
	r := tickStory()
	for _, f := range slices.Concat(Account(r), Linear(r, "")) {
		t.Error(f)
	}
	if got, want := CountGates(r), (Gates{Keys: 2, Ran: 3, Skipped: 2, Judged: 4}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEachPlantedFaultOfAScheduleIsFound(t *testing.T) {
	t.Parallel()
	// last appends a tick to what the last read shows, and its run.
	last := func(r *Record, second int, earlier int) {
		x := ranAt(int64(second), strconv.Itoa(second))
		x.Earlier = earlier
		c := &r.Calls[3]
		c.Ticks, c.Wall = append(c.Ticks, x), x.At
		r.Finals = append(r.Finals, runOf(second))
		r.Lines = append(r.Lines, ran(strconv.Itoa(second), 10*second, 10*second+5)...)
	}
	change := func(r *Record, kind history.Kind, from, to time.Duration, v history.Verdict) {
		r.Calls = append(r.Calls, history.Call{Kind: kind, Schedule: "s", Call: from, Return: to, Verdict: v})
		number(r)
	}
	for name, c := range map[string]struct {
		want  []Kind
		spoil func(*Record)
	}{
		"a tick ran twice": {[]Kind{Duplicated}, func(r *Record) {
			again := runOf(2)
			again.ID, again.Tasks[0].Worker = "3", "w3"
			r.Finals = append(r.Finals, again)
			r.Lines = append(r.Lines, ran("3", 30, 35)...)
		}},
		"a run of no tick":                      {[]Kind{Unexpected, Unexpected, Lost}, func(r *Record) { r.Finals[0].Run.At = 1001 }},
		"the job of a tick is missing":          {[]Kind{Lost}, func(r *Record) { r.Finals, r.Lines = r.Finals[:2], r.Lines[:4] }},
		"the job of another tick":               {[]Kind{Lost}, func(r *Record) { r.Finals[2].Run.At = 7000 }},
		"the job of another schedule":           {[]Kind{Lost}, func(r *Record) { r.Finals[2].Run.ID = 5 }},
		"a skipped tick ran":                    {[]Kind{Unexpected}, func(r *Record) { r.Finals = append(r.Finals, runOf(3)); r.Lines = append(r.Lines, ran("3", 30, 35)...) }},
		"a tick ran that was counted as missed": {[]Kind{Unexpected}, func(r *Record) { r.Finals = append(r.Finals, runOf(4)); r.Lines = append(r.Lines, ran("4", 40, 45)...) }},
		"an outcome changes":                    {[]Kind{Backwards}, func(r *Record) { r.Calls[3].Ticks[1] = history.Tick{At: 2000, Became: history.TickOpen} }},
		"a tick is early":                       {[]Kind{Disorder}, func(r *Record) { r.Calls[3].Wall = 5999 }},
		"a tick is early by a wrong clock": {nil, func(r *Record) {
			r.Calls[3].Wall, r.Harms = 5999, []ledger.Harm{{Worker: clocksHarmed, From: 105, Until: 120}}
		}},
		"a tick is early after a clock was corrected": {[]Kind{Disorder}, func(r *Record) {
			r.Calls[3].Wall, r.Harms = 5999, []ledger.Harm{{Worker: clocksHarmed, From: 50, Until: 99}}
		}},
		"a tick has no outcome":                 {[]Kind{Lost}, func(r *Record) { last(r, 8, 0) }},
		"fewer were missed than have none":      {[]Kind{Lost}, func(r *Record) { last(r, 9, 1) }},
		"all were missed that have none":        {nil, func(r *Record) { last(r, 9, 2) }},
		"as many were missed as are counted":    {nil, func(r *Record) { last(r, 5000, 1000) }},
		"it was paused meanwhile":               {nil, func(r *Record) { last(r, 8, 0); change(r, history.ResumeSchedule, 150, 160, history.OK) }},
		"it may have been set meanwhile":        {nil, func(r *Record) { last(r, 8, 0); change(r, history.SetSchedule, 150, history.Never, history.Unknown) }},
		"it was not resumed":                    {[]Kind{Lost}, func(r *Record) { last(r, 8, 0); change(r, history.ResumeSchedule, 150, 160, history.Fail) }},
		"it was resumed later":                  {[]Kind{Lost}, func(r *Record) { last(r, 8, 0); change(r, history.ResumeSchedule, 250, 260, history.OK) }},
		"it was resumed before an earlier read": {[]Kind{Lost}, func(r *Record) { last(r, 8, 0); change(r, history.ResumeSchedule, 50, 60, history.OK) }},
		"one resume and two gaps": {[]Kind{Lost}, func(r *Record) {
			last(r, 8, 0)
			last(r, 11, 0)
			change(r, history.ResumeSchedule, 150, 160, history.OK)
		}},
		"two runs overlap": {[]Kind{Unexpected}, func(r *Record) { r.Lines[1].At = r.Lines[2].At + 1 }},
		"a run is on a stopped worker": {nil, func(r *Record) {
			r.Lines[1].At = r.Lines[2].At + 1
			r.Harms = []ledger.Harm{{Worker: "w1", From: r.Lines[0].At, Cause: ledger.Stopped}}
		}},
		"a run is lost": {[]Kind{Lost, Lost}, func(r *Record) {
			r.Finals[0].State, r.Finals[0].Tasks[0].State, r.Finals[0].Completed = "running", "pending", 0
		}},
	} {
		r := tickStory()
		c.spoil(&r)
		var got []Kind
		faults := Account(r)
		for _, f := range faults {
			got = append(got, f.Kind)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, faults, c.want)
		}
	}
}
