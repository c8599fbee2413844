package forecast

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

func never() bool { return false }

// makespan forecasts units that all end.
func makespan(t *testing.T, fleet []scheduler.Capacity, units ...Unit) int64 {
	t.Helper()
	r, ok := Run(1, fleet, scheduler.Queue{}, units, never)
	if !ok || r.Unplaced != 0 {
		t.Fatalf("got %+v, %t", r, ok)
	}
	return r.MakespanMS
}

func slots(n ...int) (fleet []scheduler.Capacity) {
	for _, s := range n {
		fleet = append(fleet, scheduler.Capacity{Slots: s})
	}
	return fleet
}

func TestAForecastIsTheScheduleByHand(t *testing.T) {
	t.Parallel()
	gpu := scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}}
	for name, c := range map[string]struct {
		fleet []scheduler.Capacity
		units []Unit
		want  int64
	}{
		"one task":                    {slots(1), []Unit{{Tasks: 1, TakesMS: 5}}, 5},
		"a chain":                     {slots(4), []Unit{{Tasks: 1, TakesMS: 5}, {Tasks: 1, TakesMS: 7, Needs: []uint32{0}}}, 12},
		"an array in rounds":          {slots(2, 2), []Unit{{Tasks: 9, TakesMS: 10}}, 30},
		"max_parallel":                {slots(9), []Unit{{Tasks: 9, TakesMS: 10, Limit: 2}}, 50},
		"two arrays with limits":      {slots(9), []Unit{{Tasks: 4, TakesMS: 10, Limit: 2}, {Tasks: 4, TakesMS: 10, Limit: 1}}, 40},
		"cleanup after all others":    {slots(9), []Unit{{Tasks: 1, TakesMS: 10}, {Tasks: 1, TakesMS: 20}, {Tasks: 2, TakesMS: 3, Cleanup: true}}, 23},
		"a cleanup task after others": {slots(9), []Unit{{Tasks: 1, TakesMS: 10}, {Tasks: 1, TakesMS: 3, Cleanup: true}, {Tasks: 1, TakesMS: 4, Cleanup: true, Needs: []uint32{1}}}, 17},
		"a skipped task": {slots(9), []Unit{
			{Tasks: 1, TakesMS: 10}, {Tasks: 1, TakesMS: 90, Needs: []uint32{0}, Skipped: true}, {Tasks: 1, TakesMS: 2, Needs: []uint32{1}},
		}, 12},
		"only skipped tasks": {slots(1), []Unit{{Tasks: 1, TakesMS: 10, Skipped: true}, {Tasks: 1, TakesMS: 3, Cleanup: true}}, 3},
		"a resource": {
			[]scheduler.Capacity{{Slots: 8, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 2000}}}, {Slots: 8}},
			[]Unit{{Tasks: 6, TakesMS: 10, Demand: gpu}, {Tasks: 1, TakesMS: 5}},
			30,
		},
		"a higher priority first": {
			slots(1),
			[]Unit{{Tasks: 2, TakesMS: 10, Priority: scheduler.Low}, {Tasks: 1, TakesMS: 1, Priority: scheduler.High}, {Tasks: 1, TakesMS: 100, Needs: []uint32{1}}},
			121,
		},
		"tasks that take no time": {slots(1), []Unit{{Tasks: 3}, {Tasks: 1, Needs: []uint32{0}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := makespan(t, c.fleet, c.units...); got != c.want {
				t.Errorf("got %d ms, want %d", got, c.want)
			}
		})
	}
}

// Of two workers whose tasks end at the same time, the first to report gets all urgent tasks. They
// take three slots: if that is the worker in the zone, all tasks of the zone wait for them.
func TestSlotsOfAWorkerMayBecomeFreeBeforeThoseOfAnother(t *testing.T) {
	t.Parallel()
	zone := scheduler.Label{Name: "zone", Value: "eu"}
	fleet := []scheduler.Capacity{{Slots: 3, Labels: []scheduler.Label{zone}}, {Slots: 3}}
	units := []Unit{
		{Tasks: 9, TakesMS: 10, Priority: scheduler.Urgent},
		{Tasks: 4, TakesMS: 10, Demand: scheduler.Demand{Labels: []scheduler.Label{zone}}},
	}
	count := make(map[order]map[int64]int)
	for seed := range uint64(60) {
		r, ok := Run(seed, fleet, scheduler.Queue{}, units, never)
		if !ok || r.Unplaced != 0 {
			t.Fatalf("got %+v, %t", r, ok)
		}
		of := order(seed % orders)
		if count[of] == nil {
			count[of] = make(map[int64]int)
		}
		count[of][r.MakespanMS]++
	}
	t.Log(count)
	if n := count[byWorker]; n[30] < 5 || n[40] < 5 || n[30]+n[40] != 20 {
		t.Errorf("one worker before the other: got %v, want both 30 and 40 ms several times", n)
	}
	if n := count[oneByOne]; n[40] > 5 {
		t.Errorf("one task before the other: got %v, want mostly 30 ms", n)
	}
}

func TestTasksThatNoWorkerFitsNeverEnd(t *testing.T) {
	t.Parallel()
	rare := scheduler.Demand{Type: "rare"}
	r, ok := Run(1, []scheduler.Capacity{{Slots: 2, Types: []string{"noop"}}}, scheduler.Queue{}, []Unit{
		{Tasks: 3, TakesMS: 5, Demand: scheduler.Demand{Type: "noop"}}, {Tasks: 2, TakesMS: 5, Demand: rare}, {Tasks: 4, TakesMS: 5, Needs: []uint32{1}},
	}, never)
	if want := (Result{MakespanMS: 10, Unplaced: 6}); !ok || r != want {
		t.Errorf("got %+v, %t, want %+v", r, ok, want)
	}
	if r, ok = Run(1, nil, scheduler.Queue{}, []Unit{{Tasks: 7}}, never); !ok || r.Unplaced != 7 {
		t.Errorf("without workers: got %+v, %t", r, ok)
	}
}

func TestAForecastCanBeStopped(t *testing.T) {
	t.Parallel()
	if _, ok := Run(1, slots(1), scheduler.Queue{}, []Unit{{Tasks: 10 * checkInterval}}, func() bool { return true }); ok {
		t.Error("the forecast was not stopped")
	}
}

func TestAForecastCanBeStoppedWhileNothingStarts(t *testing.T) {
	t.Parallel()
	units := make([]Unit, 2*checkInterval)
	for i := range units { // a shape of its own for each
		units[i] = Unit{Tasks: 2, Limit: 1, Demand: scheduler.Demand{Type: fmt.Sprint("rare", i)}}
	}
	if _, ok := Run(1, []scheduler.Capacity{{Slots: 2, Types: []string{"noop"}}}, scheduler.Queue{}, units, func() bool { return true }); ok {
		t.Error("the forecast was not stopped")
	}
}

// A makespan is between the bounds of list scheduling: at least the longest chain and the
// work of each slot, at most twice the larger of them. All tasks fit each worker.
func TestAMakespanIsWithinTheBoundsOfListScheduling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var units []Unit
		var work int64
		ends := make([]int64, 0, 30)
		longest := int64(0)
		for i := range rapid.IntRange(1, 30).Draw(rt, "units") {
			u := Unit{Tasks: rapid.Uint32Range(1, 6).Draw(rt, "tasks"), TakesMS: rapid.Int64Range(0, 50).Draw(rt, "takes")}
			start := int64(0)
			for d := range i {
				if rapid.IntRange(0, 4).Draw(rt, "needs") == 0 {
					u.Needs = append(u.Needs, uint32(d))
					start = max(start, ends[d])
				}
			}
			units, ends = append(units, u), append(ends, start+u.TakesMS)
			longest = max(longest, start+u.TakesMS)
			work += int64(u.Tasks) * u.TakesMS
		}
		fleet, all := []scheduler.Capacity{}, int64(0)
		for range rapid.IntRange(1, 4).Draw(rt, "workers") {
			n := rapid.IntRange(1, 5).Draw(rt, "slots")
			fleet, all = append(fleet, scheduler.Capacity{Slots: n}), all+int64(n)
		}
		r, ok := Run(1, fleet, scheduler.Queue{}, units, never)
		if !ok || r.Unplaced != 0 {
			rt.Fatalf("got %+v, %t", r, ok)
		}
		if r.MakespanMS < longest || r.MakespanMS*all < work || r.MakespanMS*all > work+longest*(all-1) {
			rt.Fatalf("got %d ms on %d slots, with a chain of %d ms and %d ms of work", r.MakespanMS, all, longest, work)
		}
		again, _ := Run(1, fleet, scheduler.Queue{}, units, never)
		if again != r {
			rt.Fatalf("got %+v, then %+v", r, again)
		}
	})
}

// BenchmarkRun forecasts 100,000 tasks with two dependencies each, on 100 workers.
func BenchmarkRun(b *testing.B) {
	const n, width = 100_000, 1000
	units, fleet := make([]Unit, n), make([]scheduler.Capacity, 100)
	for i := range fleet {
		fleet[i].Slots = 8
	}
	for i := range units {
		units[i] = Unit{Tasks: 1, TakesMS: int64(i%977) + 1}
		if i > width {
			units[i].Needs = []uint32{uint32(i - width - 1), uint32(i - width)}
		}
	}
	b.Run("of 100,000 tasks", func(b *testing.B) {
		for b.Loop() {
			if r, ok := Run(1, fleet, scheduler.Queue{}, units, never); !ok || r.Unplaced > 0 {
				b.Fatal("tasks are left")
			}
		}
	})
}
