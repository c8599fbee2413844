package backoff_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/scheduler/backoff"
)

// classes parses valid classes.
func classes(t *testing.T, texts ...string) []backoff.Class {
	t.Helper()
	out := make([]backoff.Class, 0, len(texts))
	for _, text := range texts {
		c, err := backoff.ParseClass(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func TestAClassMatchesOnlyItsFailures(t *testing.T) {
	t.Parallel()
	failures := map[string]backoff.Failure{
		"exit 1":         {Kind: backoff.Exit, Code: 1},
		"exit 2":         {Kind: backoff.Exit, Code: 2},
		"exit 258":       {Kind: backoff.Exit, Code: 258},
		"killed":         {Kind: backoff.Signal, Name: "KILL"},
		"terminated":     {Kind: backoff.Signal, Name: "TERM"},
		"timeout":        {Kind: backoff.Timeout},
		"lost":           {Kind: backoff.Lost},
		"start":          {Kind: backoff.Start},
		"oom":            {Kind: backoff.OOM},
		"named error":    {Kind: backoff.Error, Name: "NotFound"},
		"nameless error": {Kind: backoff.Error},
		"unset":          {},
	}
	for text, want := range map[string][]string{
		"exit:2":         {"exit 2"},
		"exit:1-3":       {"exit 1", "exit 2"},
		"exit:1-255":     {"exit 1", "exit 2"},
		"signal:KILL":    {"killed"},
		"timeout":        {"timeout"},
		"lost":           {"lost"},
		"start":          {"start"},
		"oom":            {"oom"},
		"error:NotFound": {"named error"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c := classes(t, text)[0]
			for name, f := range failures {
				if got := c.Matches(f); got != slices.Contains(want, name) {
					t.Errorf("%s: got %v", name, got)
				}
			}
			if c.String() != text {
				t.Errorf("String returned %q", c)
			}
		})
	}
	if (backoff.Class{}).Matches(backoff.Failure{}) {
		t.Error("the zero class matches the zero failure")
	}
}

func TestInvalidClassesAreRejected(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "Exit:1", " timeout", "unset", "timeout:", "oom:1",
		"exit", "exit:", "exit:0", "exit:256", "exit:007", "exit:+7", "exit:1-", "exit:-1", "exit:1-2-3", "exit:3-1",
		"signal:", "signal:9", "signal:SIGKILL", "signal:kill",
		"error", "error:", "error:2x", "error:Größe", "error:" + strings.Repeat("x", 64), "error:Not Found",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c, err := backoff.ParseClass(text)
			if want := fmt.Sprintf("invalid failure class %q", text); err == nil || err.Error() != want {
				t.Fatalf("got %v, %v; want %s", c, err, want)
			}
			if c != (backoff.Class{}) {
				t.Errorf("got %v with the error", c)
			}
		})
	}
}

func TestSignalsAreSorted(t *testing.T) {
	t.Parallel()
	if names := backoff.Signals(); !slices.IsSorted(names) {
		t.Errorf("got %v: binary search needs them sorted", names)
	}
}

func FuzzParseClass(f *testing.F) {
	for _, seed := range []string{"exit:2", "exit:1-3", "signal:KILL", "timeout", "lost", "start", "oom", "error:Name", "exit:-", ":", "error:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := backoff.ParseClass(text)
		if err != nil {
			if c != (backoff.Class{}) {
				t.Errorf("%q: got %v with error %v", text, c, err)
			}
			return
		}
		again, err := backoff.ParseClass(c.String())
		if err != nil || again != c {
			t.Errorf("String of %q is %q, which parses as %v, %v", text, c, again, err)
		}
	})
}
