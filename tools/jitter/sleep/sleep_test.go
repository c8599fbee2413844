//go:build linux

package sleep

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// loaded returns a plan in which site 3 sleeps twice for 20 ms, and the path of its log.
func loaded(t *testing.T) (*plan, string) {
	t.Helper()
	dir := t.TempDir()
	path, log := filepath.Join(dir, "plan"), filepath.Join(dir, "log")
	text := fmt.Sprintf(`{"Pause": %d, "Times": 2, "Sites": [3], "Log": %q}`, 20*time.Millisecond, log)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.log.Close() })
	return p, log
}

func TestAPlannedSiteSleepsAsOftenAsPlanned(t *testing.T) {
	t.Parallel()
	p, log := loaded(t)
	start := time.Now()
	for range 5 {
		for site := range 10 {
			p.at(site)
		}
	}
	if took := time.Since(start); took < 40*time.Millisecond {
		t.Errorf("five passes took %s, want two sleeps of 20 ms", took)
	}
	got, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "3\n3\n" {
		t.Errorf("got the log %q, want two sleeps at site 3", got)
	}
}

func TestNoVirtualTimePassesDuringASleep(t *testing.T) {
	t.Parallel()
	p, _ := loaded(t)
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		begin, fired := time.Now(), false
		time.AfterFunc(time.Millisecond, func() { fired = true })
		p.at(3)
		if passed := time.Since(begin); passed != 0 || fired {
			t.Errorf("%s of virtual time passed, and a timer of 1 ms has fired: %t", passed, fired)
		}
	})
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("took %s, want a sleep of 20 ms in real time", took)
	}
}

func TestAMissingPlanEndsTheTests(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a plan that is missing was accepted")
		}
	}()
	mustLoad(filepath.Join(t.TempDir(), "plan"))
}
