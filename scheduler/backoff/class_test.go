package backoff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/scheduler/backoff"
)

// classes parses class strings that must be right.
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

func TestAClassMatchesItsFailuresOnly(t *testing.T) {
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
				t.Errorf("written as %q", c)
			}
		})
	}
	if (backoff.Class{}).Matches(backoff.Failure{}) {
		t.Error("the zero class matches the zero failure")
	}
}

func TestAFaultyClassIsRefusedWithWhatToWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "write one of",
		"Exit:1":                           "write one of",
		" timeout":                         "write one of",
		"unset":                            "write one of",
		"timeout:":                         `write "timeout"`,
		"oom:1":                            `write "oom"`,
		"exit":                             "from 1 to 255",
		"exit:":                            "from 1 to 255",
		"exit:0":                           "from 1 to 255",
		"exit:256":                         "from 1 to 255",
		"exit:007":                         "from 1 to 255",
		"exit:+7":                          "from 1 to 255",
		"exit:1-":                          "from 1 to 255",
		"exit:-1":                          "from 1 to 255",
		"exit:1-2-3":                       "from 1 to 255",
		"exit:3-1":                         "write exit:1-3",
		"signal:":                          "no such signal",
		"signal:9":                         "no such signal",
		"signal:SIGKILL":                   "write signal:KILL",
		"signal:kill":                      "write signal:KILL",
		"error":                            "such as error:NotFound",
		"error:":                           "such as error:NotFound",
		"error:2x":                         "such as error:NotFound",
		"error:Größe":                      "such as error:NotFound",
		"error:" + strings.Repeat("x", 64): "such as error:NotFound",
		"error:Not Found":                  "such as error:NotFound",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			c, err := backoff.ParseClass(text)
			if err == nil {
				t.Fatalf("got %v, want an error", c)
			}
			if c != (backoff.Class{}) {
				t.Errorf("got %v beside the error", c)
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %q, want it to say %q", err, want)
			}
		})
	}
}

func TestSignalsAreSorted(t *testing.T) {
	t.Parallel()
	if names := backoff.Signals(); !slices.IsSorted(names) {
		t.Errorf("got %v: the search for a name needs them sorted", names)
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
				t.Errorf("%q: got %v beside the error %v", text, c, err)
			}
			return
		}
		again, err := backoff.ParseClass(c.String())
		if err != nil || again != c {
			t.Errorf("%q is written as %q, which is read as %v, %v", text, c, again, err)
		}
	})
}
