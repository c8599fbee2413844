package calendar

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dtask/dtask/internal/zoneinfo"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := zoneinfo.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func point(t *testing.T, text string) Point {
	t.Helper()
	if text == "" {
		return Point{}
	}
	p, err := ParsePoint(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// define builds a schedule from words such as cron=30 2 * * *; zone=Europe/Berlin.
func define(t *testing.T, text string) (*Schedule, error) {
	t.Helper()
	c := Config{Name: "nightly"}
	for part := range strings.SplitSeq(text, "; ") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "cron":
			e, err := ParseCron(value)
			if err != nil {
				t.Fatal(err)
			}
			c.Cron = append(c.Cron, e)
		case "zone":
			c.Zone = zone(t, value)
		case "from":
			c.From = point(t, value)
		case "until":
			c.Until = point(t, value)
		case "except":
			c.Except = append(c.Except, point(t, value))
		case "at":
			c.At = append(c.At, point(t, value))
		case "every", "jitter":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			if key == "every" {
				c.Every = d
			} else {
				c.Jitter = d
			}
		case "skip":
			c.Gap = SkipGap
		case "twice":
			c.Repeat = Twice
		default:
			t.Fatalf("unknown word %q", key)
		}
	}
	return New(c)
}

// Each block of the golden file is a definition, the time from which it is previewed, and
// its ticks.
func TestPreviewsMarkUnusualTicks(t *testing.T) {
	t.Parallel()
	const path = "testdata/previews.txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, _, _ := strings.Cut(block, "\n")
		definition, after, ok := strings.Cut(head, " | ")
		if !ok {
			t.Fatalf("invalid block %q", block)
		}
		s, err := define(t, definition)
		if err != nil {
			t.Fatalf("%s: %v", definition, err)
		}
		begin, err := time.Parse(time.RFC3339, after)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n", head)
		for _, tick := range s.Preview(begin, 5) {
			fmt.Fprintf(&got, "%s %s\n", tick.At.Format(time.RFC3339), tick.Note)
		}
		got.WriteByte('\n')
	}
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAScheduleThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	for definition, want := range map[string]string{
		"cron=0 0 * * *; every=1h":   "cron: a schedule needs exactly one of cron, every and at",
		"zone=UTC":                   "cron: a schedule needs exactly one of cron, every and at",
		"every=1500ms":               "every: 1.5s is not a whole number of seconds",
		"every=-1s":                  "every: -1s is not a whole",
		"every=1h; jitter=2h":        "jitter: is longer than every",
		"cron=0 0 * * *; jitter=25h": "jitter: 25h0m0s is out of range",
		"at=2026-12-25":              `at: "2026-12-25" has no time of day; write it like 2026-12-25T08:00`,
		"at=2026-12-25T08:00; at=2026-12-25T08:00Z":                                                  "at: duplicate time",
		"at=2026-12-25T08:00; except=2026-12-25":                                                     "except: never fires",
		"at=2026-03-29T02:30; zone=Europe/Berlin; skip=":                                             "at: never fires: none of the times exists",
		"cron=0 0 * * *; from=2026-02-01; until=2026-01-01":                                          `until: "2026-01-01" is before from, "2026-02-01"`,
		"cron=0 0 1 1 *; from=2026-02-01; until=2026-12-01":                                          "until: never fires: it has no tick from 2026-02-01 until 2026-12-01",
		"cron=0 0 1 1 *; from=2026-02-01; until=2026-12-01; except=2026-03-01":                       "until: never fires: it has no tick from 2026-02-01 until 2026-12-01",
		"at=2026-03-29T02:30; zone=Europe/Berlin; skip=; except=2026-12-25":                          "at: never fires: none of the times exists",
		"cron=0 0 29 2 *; until=2026-02-01; except=2016-02-29; except=2020-02-29; except=2024-02-29": "except: never fires",
	} {
		_, err := define(t, definition)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", definition, err, want)
		}
	}
}

func TestTheRarestTickIsFound(t *testing.T) {
	t.Parallel()
	s, err := define(t, "cron=59 23 29 2 *; zone=America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	tick, ok := s.Next(time.Date(2096, 3, 1, 12, 0, 0, 0, time.UTC))
	if want := "2104-02-29T23:59:00-05:00"; !ok || tick.At.Format(time.RFC3339) != want {
		t.Errorf("got %v, %v; want %s", tick, ok, want)
	}
}

func TestAScheduleEnds(t *testing.T) {
	t.Parallel()
	s, err := define(t, "cron=0 8 * * *; until=2026-01-02")
	if err != nil {
		t.Fatal(err)
	}
	if ticks := s.Preview(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 5); len(ticks) != 2 {
		t.Errorf("got %v", ticks)
	}
	if tick, ok := s.Next(time.Date(2026, 1, 2, 8, 0, 0, 0, time.UTC)); ok {
		t.Errorf("got %v", tick)
	}
	// Instants at the ends of what Go can represent.
	for _, at := range []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 0)} {
		s.Next(at)
	}
}

func TestJitterDependsOnNameAndTickAlone(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	delays := map[time.Duration]bool{}
	for _, name := range []string{"a", "b"} {
		e, err := ParseCron("@daily")
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Name: name, Cron: []*Expression{e}, Jitter: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ticks := s.Preview(begin, 30)
		for i, tick := range ticks {
			d := tick.Start.Sub(tick.At)
			if d < 0 || d >= 5*time.Minute {
				t.Errorf("delay %s", d)
			}
			delays[d] = true
			if i == 0 {
				continue
			}
			if again, _ := s.Next(ticks[i-1].At.Add(time.Minute)); again != tick {
				t.Errorf("got %v, and then %v", tick, again)
			}
		}
	}
	if len(delays) < 55 {
		t.Errorf("only %d delays differ", len(delays))
	}
	s, err := define(t, "cron=0 0 * * *; jitter=5m")
	if err != nil {
		t.Fatal(err)
	}
	// Fixed for all time: leaders of different versions must agree.
	if tick, _ := s.Next(begin); tick.Start.Format("15:04:05.000") != fixedStart {
		t.Errorf("starts at %s", tick.Start.Format("15:04:05.000"))
	}
}

// fixedStart is when the tick of 2 January 2026 of the schedule nightly starts.
const fixedStart = "00:04:08.309"

func TestErrorsOfExpressionsHaveAPosition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "0 is empty",
		"  ":                           "0 is empty",
		"* * * *":                      "6 has 4 fields; write five",
		"* * * * * * *":                "12 has 7 fields",
		"60 * * * *":                   "0 minute: 60 is out of range; write 0 to 59",
		"0 24 * * *":                   "2 hour: 24 is out of range; write 0 to 23",
		"0 0 0 * *":                    "4 day of month: 0 is out of range; write 1 to 31",
		"0  0 1 13 *":                  "7 month: 13 is out of range; write 1 to 12, or JAN to DEC",
		"0 0 * * 8":                    "8 day of week: 8 is out of range; write 0 to 7, or SUN to SAT",
		"0 0 * * mon,xyz":              `12 day of week: invalid value "xyz"`,
		"1,,2 * * * *":                 "2 minute: a value is missing",
		"1, * * * *":                   "2 minute: a value is missing",
		"5-1 * * * *":                  `0 minute: range "5-1" ends before it begins; write 5-59,0-1`,
		"0 22-6 * * *":                 `2 hour: range "22-6" ends before it begins; write 22-23,0-6`,
		"1-2-3 * * * *":                `0 minute: invalid range "1-2-3"`,
		"*/0 * * * *":                  "2 minute: step 0",
		"*/x * * * *":                  `2 minute: invalid step "x"`,
		"*/90 * * * *":                 "2 minute: step 90 is longer than the range 0-59; write 0 for once, or every: 90m for equal distances",
		"1/2/3 * * * *":                `4 minute: "1/2/3" has two steps`,
		"0 0 30 2 *":                   "4 never fires: no month that matches has a day 30; its months have at most 29 days",
		"0 0 31 4,6,9,11 *":            "4 never fires: no month that matches has a day 31",
		"0 0 L * *":                    "4 day of month: invalid value \"L\"; L, W and # are not supported",
		"0 0 * * 5#3":                  "8 day of week: invalid value \"5#3\"; L, W and # are not supported",
		"0 0 ? * MON":                  "4 day of month: invalid value \"?\"; write *",
		"H 0 * * *":                    "0 minute: invalid value \"H\"; H and ~ are not supported",
		"0~30 * * * *":                 "0 minute: invalid value \"0~30\"; H and ~ are not supported",
		"-5 * * * *":                   "0 minute: a value is missing",
		"TZ=UTC 0 0 * * *":             "0 has a time zone; write it as timezone: beside cron",
		"@every 10m":                   "0 @every is not a cron expression; write every: 10m",
		"@every 1h30m":                 "0 @every is not a cron expression; write every: 1h30m instead of cron",
		"@every 0s":                    "0 @every is not a cron expression; write every: 10m",
		"@every week":                  "0 @every is not a cron expression; write every: 10m",
		"@every":                       "0 @every is not a cron expression; write every: 10m",
		"@reboot":                      "0 @reboot is not supported",
		"@dayly":                       `0 unknown name "@dayly"`,
		"@daily 5":                     "7 has a word after @daily",
		"99999999999999999999 * * * *": "0 minute: 99999999999999999999 is out of range",
		strings.Repeat("1,", 600):      "0 has 1200 bytes; at most 1024",
	} {
		_, err := ParseCron(text)
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("%q: got %v, want %s", text, err, want)
			continue
		}
		if got := fmt.Sprintf("%d %s", e.Offset, e); !strings.HasPrefix(got, want) || e.Do == "" {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestEqualExpressionsCanBeWrittenInManyWays(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "0 0 0 * * sun", "@weekly", "00 00 * * 0"},
		{"*/15 * * * *", "0-59/15 * * * *", "0/15 * * * *", "0 */15 * * * *"},
		{"0 0 * * FRI-SUN", "0 0 * * 5-7", "0 0 * * 5-6,0", "0\t0  * * fri,sat,sun"},
		{"0 0 1 1 *", "@yearly", "@annually", "0 0 1 JAN *", "@YEARLY"},
		{"0 0 * * *", "@daily", "@midnight", "0 0 */1 * *", "0 0 * 1-12 *"},
		{"0 * * * *", "@hourly"},
		{"0 0 1 * *", "@monthly"},
	} {
		first, err := ParseCron(same[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range same[1:] {
			e, err := ParseCron(text)
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			a, b := *first, *e
			a.text, b.text, a.interval, b.interval = "", "", false, false
			if a != b {
				t.Errorf("%q is %v, %q is %v", same[0], a, text, b)
			}
		}
	}
}

func TestPointsHaveThreeForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-12-25": "", "2026-12-25T08:00": "", "2026-12-25T08:00:01": "", "2026-12-25T08:00Z": "", "2026-12-25T08:00:00+01:00": "",
		"2026-12-25T08:00:00.5Z": `"2026-12-25T08:00:00.5Z" has a fraction`, "1969-12-31": "\"1969-12-31\" is out of range",
		"2026-13-25": `invalid time "2026-13-25"`, "2026-12-25 08:00": `invalid time "2026-12-25 08:00"; write a T between`,
		"tomorrow": `invalid time "tomorrow"; write it like`, "": "invalid time", "1970-01-01T00:00+01:00": `"1970-01-01T00:00+01:00" is out of range`,
	} {
		p, err := ParsePoint(text)
		if want == "" && (err != nil || p.String() != text) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: got %v, %v; want %q", text, p, err, want)
		}
	}
}

// Ticks that start in another order would make each other late.
func TestAJitterThatIsLongerThanTheTimeBetweenTicksKeepsTheirOrder(t *testing.T) {
	t.Parallel()
	e, err := ParseCron("*/10 8-9 * * *")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Name: "often", Cron: []*Expression{e}, Jitter: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ticks := s.Preview(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), 500)
	long := 0
	for i, tick := range ticks[:len(ticks)-1] {
		if !tick.Start.Before(ticks[i+1].At) {
			t.Errorf("tick %v starts at %v, not before tick %v", tick.At, tick.Start, ticks[i+1].At)
		}
		if tick.Start.Sub(tick.At) > 10*time.Minute { // the last one of a day
			long++
		}
	}
	if long == 0 {
		t.Error("no tick is delayed by more than 10 minutes")
	}
}
