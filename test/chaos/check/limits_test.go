package check

import (
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/ledger"
)

func TestALimitThatIsHeldTwiceIsFound(t *testing.T) {
	t.Parallel()
	stop := ledger.Harm{Worker: "w1", From: 45, Until: 59, Cause: ledger.Stopped}
	for name, test := range map[string]struct {
		uses   []string
		second time.Duration // start of b; a runs from 30 to 40
		end    time.Duration // of a
		harms  []ledger.Harm
		faults int
	}{
		"one after another":                 {[]string{"db"}, 50, 40, nil, 0},
		"an overlap":                        {[]string{"db"}, 50, 55, nil, 1},
		"an overlap of two limits":          {[]string{"db", "tenant/a"}, 50, 55, nil, 2},
		"an overlap without a limit":        {nil, 50, 55, nil, 0},
		"the first holder is stopped":       {[]string{"db"}, 50, 55, []ledger.Harm{stop}, 0},
		"another worker is stopped":         {[]string{"db"}, 50, 55, []ledger.Harm{{Worker: "w2", From: 45, Until: 59, Cause: ledger.Stopped}}, 1},
		"the first holder is disconnected":  {[]string{"db"}, 50, 55, []ledger.Harm{{Worker: "w1", From: 45, Until: 59, Cause: "workers-cut-off"}}, 1},
		"the first holder was killed early": {[]string{"db"}, 50, 0, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := story()
			r.Plans[0].Uses, r.Harms = test.uses, test.harms
			r.Lines[1].At, r.Lines[2].At = test.end, test.second
			if test.end == 0 {
				r.Lines = append(r.Lines[:1:1], r.Lines[2:]...)
			}
			r.Lines[len(r.Lines)-2].Worker, r.Lines[len(r.Lines)-1].Worker = "w3", "w3"
			n := 0
			for _, f := range Account(r) {
				if strings.Contains(f.Text, "held by 2") {
					n++
				}
			}
			if n != test.faults {
				t.Errorf("got %d faults, want %d", n, test.faults)
			}
		})
	}
}

func TestALimitOfTwoMayBeHeldTwice(t *testing.T) {
	t.Parallel()
	for holders, want := range map[int]int{1: 2, 2: 1, 3: 0} {
		r := story()
		r.Plans[0].Uses, r.Plans[0].Holders = []string{"pool"}, holders
		r.Plans[0].Tasks = append(r.Plans[0].Tasks, PlannedTask{ID: "c"})
		r.Plans[0].Tasks[1].After = nil
		third := append([]ledger.Line{}, r.Lines[2:]...)
		third[0].Task, third[1].Task = "c", "c"
		r.Lines = append(r.Lines, third...)
		r.Lines[1].At = 70
		n := 0
		for _, f := range Account(r) {
			if strings.HasPrefix(f.Where, "limit ") {
				n++
			}
		}
		if n != want {
			t.Errorf("three hold a limit of %d: got %d faults, want %d", holders, n, want)
		}
	}
}
