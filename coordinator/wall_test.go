package coordinator

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Code that turns a time into a number, to store it or to compare it with stored
// times, must use the one clock that tests can set. Liveness timeouts, leases and other
// timeouts use differences, which are monotonic.
func TestOnlyTheInjectedClockBecomesANumber(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`time\.Now\(\).*\.Unix(Milli|Micro|Nano)?\(\)`)
	err := filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if number.MatchString(line) {
				t.Errorf("%s: %s", path, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
