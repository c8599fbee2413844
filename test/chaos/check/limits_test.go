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
				if strings.Contains(f.Text, "held twice") {
					n++
				}
			}
			if n != test.faults {
				t.Errorf("got %d faults, want %d", n, test.faults)
			}
		})
	}
}
