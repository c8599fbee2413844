package calendar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/zoneinfo"
)

// A croniterCase is a line for testdata/oracle.py, and what the package finds.
type croniterCase struct {
	Cron  string `json:"cron"`
	Start int64  `json:"start"` // wall clock, in seconds
	ticks []int64
	zone  *time.Location
}

// croniterText draws an expression of the common syntax. croniter accepts also ranges that
// wrap, such as 22-6, and steps that are longer than their range: here, they are errors.
// With six fields, its seconds are last.
func croniterText(r *rand.Rand) string {
	bounds := [][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	if r.IntN(2) == 0 {
		bounds = bounds[1:]
	}
	names := map[int][]string{12: monthNames, 6: weekdayNames}
	var fields []string
	for i, b := range bounds {
		value := func(n int) string {
			if list := names[b[1]]; list != nil && r.IntN(2) == 0 {
				return strings.ToUpper(list[n-b[0]])
			}
			return strconv.Itoa(n)
		}
		var items []string
		for range 1 + r.IntN(3) {
			low := b[0] + r.IntN(b[1]-b[0]+1)
			high := low + r.IntN(b[1]-low+1)
			step := 1 + r.IntN(max(1, (high-low)/2))
			switch r.IntN(6) {
			case 0:
				items = append(items, fmt.Sprintf("*/%d", 2+r.IntN((b[1]-b[0])/2)))
			case 1:
				if high > low {
					items = append(items, value(low)+"-"+value(high))
				}
			case 2:
				if high > low {
					items = append(items, fmt.Sprintf("%s-%s/%d", value(low), value(high), step))
				}
			default:
				items = append(items, value(low))
			}
		}
		if len(items) == 0 || r.IntN(3) == 0 || i >= len(bounds)-2 && r.IntN(2) == 0 {
			items = []string{"*"}
		}
		fields = append(fields, strings.Join(items, ","))
	}
	return strings.Join(fields, " ")
}

// The oracle is a program in another language: make croniter installs it.
func TestTicksAreThoseOfCroniter(t *testing.T) {
	t.Parallel()
	python := os.Getenv("DTASK_CRONITER")
	if python == "" {
		t.Skip("needs the Python package croniter: make croniter")
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) //nolint:gosec // another run each time; failures print the case
	zones := []*time.Location{time.UTC, zone(t, "Europe/Berlin"), zone(t, "America/St_Johns"), zone(t, "Asia/Kathmandu")}
	var cases []croniterCase
	var input bytes.Buffer
	for len(cases) < 20_000 {
		c := croniterCase{Cron: croniterText(r), zone: zones[r.IntN(len(zones))]}
		if !c.run(t, r.Int64N(2_200_000_000)) {
			continue
		}
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		input.Write(append(line, '\n'))
		cases = append(cases, c)
	}
	oracle := exec.CommandContext(t.Context(), python, "testdata/oracle.py") //nolint:gosec // of the environment
	oracle.Stdin, oracle.Stderr = &input, os.Stderr
	out, err := oracle.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(answers) != len(cases) {
		t.Fatalf("got %d answers to %d cases", len(answers), len(cases))
	}
	for i, c := range cases {
		want, err := json.Marshal(c.ticks)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(answers[i], " ", ""); got != string(want) {
			t.Errorf("%q in %s from %s: croniter %s, dtask %s", c.Cron, c.zone, civil(c.Start).stamp(), got, want)
		}
	}
	t.Logf("%d expressions agree", len(cases))
}

// run finds the ticks of a case. It returns false if the expression never fires, or if
// clocks are set forward or back meanwhile.
func (c *croniterCase) run(t *testing.T, from int64) bool {
	t.Helper()
	e, err := ParseCron(c.Cron)
	if err != nil && strings.HasPrefix(err.Error(), "never fires") {
		return false
	}
	if err != nil {
		t.Fatalf("%q: %v", c.Cron, err)
	}
	if e.differs() {
		return false
	}
	s, err := New(Config{Cron: []*Expression{e}, Zone: c.zone})
	if err != nil {
		t.Fatalf("%q: %v", c.Cron, err)
	}
	begin := time.Unix(from, 0)
	c.Start = int64(segmentAt(c.zone, from).civil(from))
	for _, tick := range s.Preview(begin, 5) {
		c.ticks = append(c.ticks, tick.Civil)
		from = tick.At.Unix()
	}
	for range zoneinfo.Transitions(c.zone, begin.Add(-24*time.Hour), time.Unix(from, 0).Add(24*time.Hour)) {
		return c.zone == time.UTC
	}
	return len(c.ticks) == 5
}

// differs reports that the two differ on purpose or by a mistake:
//
//   - croniter takes a day field whose values are all that exist for a *, and then the
//     other one decides. Here, only * is unrestricted, as POSIX has it: MON-FRI,SAT,SUN is
//     a list, and a date matches if either field does.
//   - croniter 6.0.0 misses the first days of March if it searches from a day of February,
//     and the days include one of them and one that February lacks: "0 0 1,31 * *" after
//     28 February is 31 March.
//   - croniter 6.0.0 finds nothing if both day fields are restricted and no month that
//     matches has a day that does, as in "0 0 30 2 MON". Here, the other field decides.
func (e *Expression) differs() bool {
	const everyDay, firstDays = 1<<32 - 2, 1<<1 | 1<<2 | 1<<3
	if e.eitherDay {
		alone := *e
		alone.eitherDay, alone.weekdays = false, 127
		if e.weekdays == 127 || e.days == everyDay || alone.possible(word{}) != nil {
			return true
		}
	}
	return e.days != everyDay && e.days&firstDays != 0 && e.days>>29 != 0
}
