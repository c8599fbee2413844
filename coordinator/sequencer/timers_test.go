package sequencer

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTimersFireInTheirOrderAndNeverEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var heap timers
		var twin []timer // in the order of their adding
		began := time.Unix(1_000_000, 0)
		now, added := began, int64(0)
		earliest := func() (first int) { // -1: there is none
			first = -1
			for i, x := range twin {
				if first < 0 || x.at.Before(twin[first].at) {
					first = i
				}
			}
			return first
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { // the time may be past: then it is due at once
				added++
				x := timer{at: began.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "at")) * time.Second), kind: timerDue, due: added}
				heap.add(x)
				twin = append(twin, x)
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "for")) * time.Second) },
			"due": func(t *rapid.T) {
				x, ok := heap.due(now)
				first := earliest()
				if want := first >= 0 && !twin[first].at.After(now); ok != want {
					t.Fatalf("something is due: %v, want %v", ok, want)
				}
				if !ok {
					return
				}
				at := slices.Index(twin, x) // of those of one moment any may be the first
				if at < 0 || !x.at.Equal(twin[first].at) {
					t.Fatalf("fires %+v, want one of %v", x, twin[first].at)
				}
				twin = slices.Delete(twin, at, at+1)
			},
			"": func(t *rapid.T) {
				at, ok := heap.next()
				if first := earliest(); ok != (first >= 0) || ok && !at.Equal(twin[first].at) {
					t.Fatalf("the next fires at %v (%v), of %d", at, ok, len(twin))
				}
			},
		})
	})
}
