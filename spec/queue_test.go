package spec

import (
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheQueueOfAJobFileIsFound(t *testing.T) {
	t.Parallel()
	const text = "job: {name: a, queue: etl}\n---\n# the second\njob:\n  name: b\n  queue: ml\n"
	for name, want := range map[string][2]int{"etl": {1, 23}, "ml": {6, 10}, "web": {}} {
		if line, column := QueuePosition([]byte(text), name); [2]int{line, column} != want {
			t.Errorf("%s: got %d:%d, want %v", name, line, column, want)
		}
	}
	if line, _ := QueuePosition([]byte("{"), "etl"); line != 0 {
		t.Errorf("invalid file: got line %d", line)
	}
}

// A queue requires single values. It has no rules, and takes none for a value.
func TestAQueueDoesNotTakeARuleForALabel(t *testing.T) {
	t.Parallel()
	for value, fine := range map[string]bool{"ssd": true, "s*": true, "*": false, "!ssd": false} {
		if err := CheckQueue("ml", &dtaskv1.QueueSettings{Require: map[string]string{"disk": value}}); (err == nil) != fine {
			t.Errorf("disk=%s: got %v", value, err)
		}
	}
}

func TestAmountsAreParsedAsInJobFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"gpu=4": 4000, "gpu=0.5": 500, "memory=1KiB": 1_024_000, "disk=5": 5000} {
		name, amount, _ := strings.Cut(text, "=")
		if got, err := ParseAmount(name, amount); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"gpu=-1", "gpu=many", "memory=1XB"} {
		name, amount, _ := strings.Cut(text, "=")
		if _, err := ParseAmount(name, amount); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
