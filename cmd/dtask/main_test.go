package main

import (
	"strings"
	"testing"
)

func TestTheNameOfTheProgramChoosesIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dtaskd", "dtask-worker", "/usr/local/bin/dtaskctl", "./dtaskd"} {
		if run, err := choose(name); err != nil || run == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "/dtask", "dtaskd-1", "dtaskd.exe"} {
		if _, err := choose(name); err == nil || !strings.Contains(err.Error(), "one of dtask-worker, dtaskctl, dtaskd") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
