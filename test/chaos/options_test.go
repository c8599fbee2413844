package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/chaos/check"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/record"
)

// Environment variables that select what runs. Those of a run are printed as its
// replay line.
const (
	suiteVariable   = "DTASK_CHAOS"         // smoke, kills, measure, old-copies, soak, commands, saturated or limits
	seedVariable    = "DTASK_CHAOS_SEED"    // a number
	minutesVariable = "DTASK_CHAOS_MINUTES" // duration in minutes
	faultsVariable  = "DTASK_CHAOS_FAULTS"  // kinds or names, separated by commas
	disksVariable   = "DTASK_CHAOS_DISKS"   // 0: ordinary disks
	killsVariable   = "DTASK_CHAOS_KILLS"   // kills of leaders in a row at the start
	oftenVariable   = "DTASK_CHAOS_OFTEN"   // kinds to draw more often than others: F19=4,F36=2
)

// options are the expanded options of a run: with the commit, they describe the whole
// request.
type options struct {
	Seed  uint64        `json:"seed"`
	For   time.Duration `json:"for"`   // of the plan, about
	Kills int           `json:"kills"` // of leaders in a row, first
	// KillsFor ends the kills after that time (0 = run all of them).
	KillsFor time.Duration `json:"kills_for"`
	Faults   []string      `json:"faults"` // names
	// Often maps a kind to how many times as often as others it is drawn.
	Often   map[string]int `json:"often"`
	Workers int            `json:"workers"`
	Slots   int            `json:"slots"`
	Clients int            `json:"clients"`
	Disks   bool           `json:"disks"` // replicas have disks that can break
	TLS     bool           `json:"tls"`   // and tokens, keys of workers
	// Handovers makes the traffic short tasks with limits, and nothing else.
	Handovers bool          `json:"handovers"`
	Safety    time.Duration `json:"safety"`
	Pace      time.Duration `json:"pace"`
	Most      time.Duration `json:"most"`

	// Minimums: a run below them proves too little and fails.
	MinKinds       int `json:"min_kinds"`
	MinLeaderKills int `json:"min_leader_kills"`
	MinTasks       int `json:"min_tasks"`
	MinCalls       int `json:"min_calls"` // successful ones
	MinHandovers   int `json:"min_handovers"`
	// MinScheduled are the least starts to compare with rates, quotas, labels and GPUs, and the
	// least preemptions.
	MinScheduled check.Scheduled `json:"min_scheduled"`
}

// number reads a variable; it may be missing.
func number[T int | uint64 | float64](t *testing.T, name string, missing T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return missing
	}
	var value T
	if _, err := fmt.Sscan(text, &value); err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return value
}

// chosen returns the requested faults, or all, with their names for the options.
func chosen(o *options) []nemesis.Fault {
	asked := strings.FieldsFunc(os.Getenv(faultsVariable), func(r rune) bool { return r == ',' })
	var some []nemesis.Fault
	for _, f := range nemesis.All() {
		if len(asked) == 0 || slices.Contains(asked, f.Kind()) || slices.Contains(asked, f.Name()) {
			some = append(some, f)
			o.Faults = append(o.Faults, f.Name())
		}
	}
	return some
}

// enough is how often each kind of fault should be in the record.
const enough = 20

// lacking returns the kinds of which the record has too few, each with how many times
// as often as the others it is drawn.
func lacking(fired map[string]int, faults []nemesis.Fault) map[string]int {
	often := make(map[string]int)
	for _, f := range faults {
		if n := fired[f.Kind()]; n < enough {
			often[f.Kind()] = 2 + (enough-n-1)/5
		}
	}
	return often
}

// oftenOf returns what the variable requests, or else what the record lacks.
func oftenOf(t *testing.T, faults []nemesis.Fault) map[string]int {
	t.Helper()
	if text, given := os.LookupEnv(oftenVariable); given {
		often, err := readOften(text)
		clustertest.Must(t, err)
		return often
	}
	path := os.Getenv(record.Env)
	if path == "" {
		return nil
	}
	runs, err := record.Read(path)
	clustertest.Must(t, err)
	runs = slices.DeleteFunc(runs, func(r record.Run) bool { return r.Suite == "simulate" || r.Suite == "cluster" })
	return lacking(record.Total(runs).Faults, faults)
}

// readOften reads what writeOften writes.
func readOften(text string) (map[string]int, error) {
	often := make(map[string]int)
	for entry := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		kind, times, _ := strings.Cut(entry, "=")
		n, err := strconv.Atoi(times)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q must be KIND=TIMES", oftenVariable, entry)
		}
		often[kind] = n
	}
	return often, nil
}

func writeOften(often map[string]int) string {
	var entries []string
	for _, kind := range slices.Sorted(maps.Keys(often)) {
		entries = append(entries, fmt.Sprintf("%s=%d", kind, often[kind]))
	}
	return strings.Join(entries, ",")
}

// replay returns the line that repeats a run.
func (o *options) replay(t *testing.T) string {
	t.Helper()
	line := fmt.Sprintf("%s=%d %s=%g", seedVariable, o.Seed, minutesVariable, max(o.For, o.KillsFor).Minutes())
	if len(o.Often) > 0 {
		line += " " + oftenVariable + "=" + writeOften(o.Often)
	}
	for _, name := range []string{suiteVariable, faultsVariable, disksVariable, killsVariable, clustertest.TLSVariable} {
		if value := os.Getenv(name); value != "" {
			line += " " + name + "=" + value
		}
	}
	return fmt.Sprintf("%s GOMAXPROCS=%d go test -count=1 -v -timeout 0 -run '^%s$' ./test/chaos", line, runtime.GOMAXPROCS(0), t.Name())
}

// seedOf returns the seed of a test and prints it with the line that repeats the test.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := number(t, seedVariable, rand.Uint64())
	t.Logf("replay: %s=%d go test -count=1 -v -run '^%s$' ./test/chaos", seedVariable, seed, t.Name())
	return seed
}

// untilOf returns when a test ends: a share of DTASK_CHAOS_MINUTES from now. Without
// the variable that is now, and a test does only its minimum.
func untilOf(t *testing.T, share float64) time.Time {
	t.Helper()
	given := os.Getenv(minutesVariable)
	if given == "" {
		return time.Now()
	}
	minutes, err := strconv.ParseFloat(given, 64)
	if err != nil {
		t.Fatalf("%s: %v", minutesVariable, err)
	}
	return time.Now().Add(time.Duration(minutes * share * float64(time.Minute)))
}
