package alerts

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

// scale divides all durations of the rules and of Prometheus in the suite: 15 minutes
// are 30 s, and an interval of 15 s between scrapes is 0.5 s. A soak of 2 minutes is one
// of an hour.
const scale = 30

// thresholds are replaced in the suite: values that are durations in seconds, and numbers
// that would take too long to reach.
var thresholds = map[string][2]string{
	"DtaskBacklogOld":    {"> 1800", "> 60"},
	"DtaskReplicaBehind": {"> 10000", "> 100"},
	"DtaskTicksMissed":   {"< 900", "< 30"},
}

var duration = regexp.MustCompile(`(\bfor: |\[|\boffset )(\d+[smhd])`)

// scaled returns the rules with shorter durations and other thresholds.
func scaled(t *testing.T) string {
	t.Helper()
	blocks := strings.Split(read(t, filepath.Join(root(t), rulesFile)), "- alert: ")
	for i, block := range blocks {
		name, _, _ := strings.Cut(block, "\n")
		if of, ok := thresholds[name]; ok {
			if strings.Count(block, of[0]) != 1 {
				t.Fatalf("%s does not have one threshold %q", name, of[0])
			}
			blocks[i] = strings.Replace(block, of[0], of[1], 1)
		}
	}
	return duration.ReplaceAllStringFunc(strings.Join(blocks, "- alert: "), func(match string) string {
		parts := duration.FindStringSubmatch(match)
		d, err := time.ParseDuration(parts[2])
		clustertest.Must(t, err)
		return fmt.Sprintf("%s%dms", parts[1], (d / scale).Milliseconds())
	})
}

func TestScaledRulesDifferOnlyInDurationsAndThresholds(t *testing.T) {
	t.Parallel()
	original, other := strings.Split(read(t, filepath.Join(root(t), rulesFile)), "\n"), strings.Split(scaled(t), "\n")
	if len(original) != len(other) {
		t.Fatalf("%d lines became %d", len(original), len(other))
	}
	durations := 0
	for i, line := range original {
		if line == other[i] {
			continue
		}
		isThreshold := false
		for _, of := range thresholds {
			isThreshold = isThreshold || strings.Replace(line, of[0], of[1], 1) == other[i]
		}
		if !isThreshold && !duration.MatchString(line) {
			t.Errorf("%q became %q", line, other[i])
		}
		if duration.MatchString(line) {
			durations++
		}
	}
	if durations < len(alertNames(t))/2 {
		t.Errorf("only %d lines have a duration", durations)
	}
}
