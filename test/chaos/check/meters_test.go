package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

// metering is a record of a job in a queue with a quota of 3: a runs from 30 to 60 on w1, b
// from 40 to 70 on w2, c from 50 to 80 on w3, and d from 80 to 90 on w4. The first three
// together take more than the quota if each takes more than 1.
func metering(takes float64) Record {
	r := Record{
		Plans:  []Plan{{Key: "k", Name: "j", Meter: "tapes", Quota: 3}},
		Finals: []Final{{ID: "7", Name: "j", State: "completed"}},
	}
	for i, at := range [][2]int{{30, 60}, {40, 70}, {50, 80}, {80, 90}} {
		task := string(rune('a' + i))
		r.Plans[0].Tasks = append(r.Plans[0].Tasks, PlannedTask{ID: task, Takes: takes})
		r.Lines = append(r.Lines, lines("7", task, fmt.Sprintf("w%d", i+1), ms*time.Duration(at[0]), ms*time.Duration(at[1]))...)
	}
	return r
}

func TestAQueueThatTakesMoreThanItsQuotaIsFound(t *testing.T) {
	t.Parallel()
	harm := func(worker string, from, until int) func(*Record) {
		return func(r *Record) {
			r.Harms = append(r.Harms, ledger.Harm{Worker: worker, From: ms * time.Duration(from), Until: ms * time.Duration(until), Cause: "workers-cut-off"})
		}
	}
	end := func(line, at int) func(*Record) { return func(r *Record) { r.Lines[line].At = ms * time.Duration(at) } }
	for name, c := range map[string]struct {
		takes  float64
		spoil  func(*Record)
		faults int
	}{
		"as much as the quota":                  {1, nil, 0},
		"more than the quota":                   {1.5, nil, 1},
		"one ends before":                       {1.5, end(1, 49), 0},
		"one ends when the last one starts":     {1.5, end(1, 50), 0},
		"a queue without a quota":               {1.5, func(r *Record) { r.Plans[0].Meter = "" }, 0},
		"tasks that take nothing":               {0, nil, 0},
		"one was killed, and its end unknown":   {1.5, func(r *Record) { r.Lines = append(r.Lines[:1:1], r.Lines[2:]...) }, 0},
		"a worker was cut off before":           {1.5, harm("w1", 45, 55), 0},
		"it was cut off before, and again":      {1.5, func(r *Record) { harm("w1", 55, 99)(r); harm("w1", 45, 55)(r) }, 0},
		"the worker of the last one was harmed": {1.5, harm("w3", 45, 55), 0},
		"all workers were cut off":              {1.5, harm("", 45, 55), 0},
		"it was cut off afterwards":             {1.5, harm("w1", 51, 99), 1},
		"it was cut off long ago":               {1.5, harm("w1", 1, 29), 1},
		"another worker was cut off":            {1.5, harm("w4", 45, 55), 1},
		"the clocks were wrong":                 {1.5, harm(clocksHarmed, 45, 55), 1},
	} {
		r := metering(c.takes)
		if c.spoil != nil {
			c.spoil(&r)
		}
		n := 0
		for _, f := range Account(r) {
			if strings.HasPrefix(f.Where, "queue ") && f.Kind == Unexpected {
				n++
			}
		}
		if n != c.faults {
			t.Errorf("%s: got %d faults, want %d", name, n, c.faults)
		}
	}
	if got, want := CountScheduled(metering(1)), (Scheduled{Metered: 4, Full: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
