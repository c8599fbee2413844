package sequencer

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimersFireInOrderAndNeverEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var heap timers
		var model []timer // in the order of add
		began := time.Unix(1_000_000, 0)
		now, added := began, int64(0)
		earliest := func() (first int) { // -1 if model is empty
			first = -1
			for i, x := range model {
				if first < 0 || x.at.Before(model[first].at) {
					first = i
				}
			}
			return first
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { // a time in the past is due immediately
				added++
				x := timer{at: began.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "at")) * time.Second), kind: timerDue, due: added}
				heap.add(x)
				model = append(model, x)
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "for")) * time.Second) },
			"due": func(t *rapid.T) {
				x, ok := heap.due(now)
				first := earliest()
				if want := first >= 0 && !model[first].at.After(now); ok != want {
					t.Fatalf("something is due: %v, want %v", ok, want)
				}
				if !ok {
					return
				}
				at := slices.Index(model, x) // several timers may have the same time
				if at < 0 || !x.at.Equal(model[first].at) {
					t.Fatalf("fires %+v, want one of %v", x, model[first].at)
				}
				model = slices.Delete(model, at, at+1)
			},
			"": func(t *rapid.T) {
				at, ok := heap.next()
				if first := earliest(); ok != (first >= 0) || ok && !at.Equal(model[first].at) {
					t.Fatalf("the next fires at %v (%v), of %d", at, ok, len(model))
				}
			},
		})
	})
}
