package cluster

import (
	"testing"
	"time"
)

func TestTheGapIsTheLongestTimeWithoutACompletionAroundTheLoss(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	seen := func(times ...int) []Completion {
		var list []Completion
		for i, ms := range times {
			list = append(list, Completion{At: at(ms), Completed: i + 1})
		}
		return list
	}
	for _, test := range []struct {
		name          string
		seen          []Completion
		longest, back int
		found         bool
	}{
		{"a loss between two completions", seen(0, 100, 900, 950), 800, 700, true},
		{"the flow comes back in jerks", seen(0, 190, 300, 900, 910), 600, 700, true},
		{"a long pause well before it is not of the loss", seen(0, 190, 210), 20, 10, true},
		{"a long pause well after it neither", seen(190, 210, 240, 1250, 9000), 1010, 1050, true},
		{"nothing was completed before", seen(500), 300, 300, true},
		{"nothing was completed after", seen(10, 20), 0, 0, false},
	} {
		gap, found := GapAround(test.seen, at(200))
		want := Gap{Longest: time.Duration(test.longest) * time.Millisecond, Back: time.Duration(test.back) * time.Millisecond}
		if gap != want || found != test.found {
			t.Errorf("%s: got %+v, %v; want %+v, %v", test.name, gap, found, want, test.found)
		}
	}
}
