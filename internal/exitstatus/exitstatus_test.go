package exitstatus_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/internal/exitstatus"
)

func TestAStatusIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct {
		status exitstatus.Status
		code   int
	}{
		"exit code 1":              {exitstatus.Status{Code: 1}, 1},
		"exit code 3":              {exitstatus.Status{Code: 3}, 3},
		"exit code 75 (temporary)": {exitstatus.Status{Code: 75}, 75},
		"exit code 255":            {exitstatus.Status{Code: 255}, 255},
		"killed by SIGHUP":         {exitstatus.Status{Signal: "SIGHUP"}, 129},
		"killed by SIGKILL":        {exitstatus.Status{Signal: "SIGKILL"}, 137},
		"killed by SIGTERM":        {exitstatus.Status{Signal: "SIGTERM"}, 143},
		"killed by SIG34":          {exitstatus.Status{Signal: "SIG34"}, 162},
		"killed by SIGKILL, probably out of memory": {exitstatus.Status{Signal: "SIGKILL", OOM: true}, 137},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			if got := tt.status.String(); got != text {
				t.Errorf("got %q", got)
			}
			if got := tt.status.ExitCode(); got != tt.code {
				t.Errorf("got exit code %d, want %d", got, tt.code)
			}
			for _, line := range []string{"", "why", "exit code 9", "a: b (temporary), probably out of memory", ":", "\n"} {
				whole := tt.status.WithOutput(line)
				if got, ok := exitstatus.Parse(whole); !ok || got != tt.status {
					t.Errorf("%q: got %+v, %t", whole, got, ok)
				}
			}
		})
	}
}

func TestOtherErrorsAreNoStatus(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "timeout: 10s exceeded", "exit code", "exit code ", "exit code 0", "exit code 256", "exit code -1", "exit code 03",
		"exit code +3", "exit code 3 ", "exit code 3 (temporary)", "exit code 75", "exit code 3 of 4", "Exit code 3",
		"item 7: exit code 3", "starting x: exit code 3", "killed by", "killed by ", "killed by KILL", "killed by SIG",
		"killed by SIG9", "killed by SIG034", "killed by SIG65", "killed by SIGFOO", "killed by SIGTERM, probably out of memory",
	} {
		if got, ok := exitstatus.Parse(text); ok {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"exit code 3: why", "exit code 75 (temporary)", "killed by SIGKILL, probably out of memory", "killed by SIG34"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := exitstatus.Parse(text)
		if !ok {
			return
		}
		if again, ok := exitstatus.Parse(s.String()); !ok || again != s {
			t.Errorf("%q: got %+v, and from its text %q %+v, %t", text, s, s, again, ok)
		}
		if code := s.ExitCode(); code < 1 || code > 255 {
			t.Errorf("%q: got exit code %d", text, code)
		}
	})
}

func ExampleParse() {
	status, ok := exitstatus.Parse("killed by SIGKILL: last line of standard error")
	fmt.Println(status, status.ExitCode(), ok)
	// Output: killed by SIGKILL 137 true
}
