package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheTestClockCanBeSetAndSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newTestClock(time.Now)
		off := func(want time.Duration) {
			t.Helper()
			if got := c.now().Sub(time.Now().Round(0)); got != want {
				t.Errorf("the clock is off by %v, want %v", got, want)
			}
		}
		set := func(s clockSetting) {
			t.Helper()
			if err := c.set(s); err != nil {
				t.Fatal(err)
			}
		}
		off(0)
		set(clockSetting{OffsetMS: -3_600_000})
		off(-time.Hour)
		time.Sleep(time.Minute)
		off(-time.Hour)
		fast := int64(1050)
		set(clockSetting{RatePermille: &fast})
		time.Sleep(100 * time.Second)
		off(5 * time.Second)
		set(clockSetting{Freeze: true, OffsetMS: 500})
		time.Sleep(10 * time.Second)
		off(500*time.Millisecond - 10*time.Second)
		set(clockSetting{})
		off(0)
		if err := c.set(clockSetting{OffsetMS: 1 << 62}); err == nil {
			t.Error("an offset of ages was taken")
		}
	})
}

func hooked(t *testing.T) (*replica, http.Handler) {
	t.Helper()
	r := &replica{cfg: Config{TestHooks: true, Wall: time.Now}, log: slog.New(slog.DiscardHandler)}
	r.useHooks()
	h := r.serveHooks(http.NotFoundHandler())
	return r, h
}

func TestASnapshotNeedsAReplicaThatIsPartOfACluster(t *testing.T) {
	t.Parallel()
	_, h := hooked(t)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/test/snapshot", http.NoBody))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %q", w.Code, w.Body)
	}
}

func TestTheHooksSayWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	_, h := hooked(t)
	for name, c := range map[string]struct {
		path, body, want string
		code             int
	}{
		"clock":         {"/test/clock", `{"offset_ms": 5, "rate_permille": 950, "freeze": false}`, "", 200},
		"other field":   {"/test/clock", `{"offset": 5}`, "unknown field", 400},
		"wild rate":     {"/test/clock", `{"rate_permille": -1}`, "rate_permille", 400},
		"step":          {"/test/fail?step=barrier&how=hang&times=2", "", "", 200},
		"unknown step":  {"/test/fail?step=lunch", "", "first-entry", 400},
		"unknown how":   {"/test/fail?step=barrier&how=badly", "", "hang", 400},
		"times is text": {"/test/fail?step=barrier&times=x", "", "invalid syntax", 400},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, strings.NewReader(c.body)))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: got %d %q, want %d with %q", name, w.Code, w.Body, c.code, c.want)
		}
	}
}

func TestAStepFailsAsOftenAsItIsTold(t *testing.T) {
	t.Parallel()
	r, h := hooked(t)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/test/fail?step=barrier&times=2", http.NoBody))
	for i, want := range []error{errTestFault, errTestFault, nil} {
		if err := r.faults().at(t.Context(), stepBarrier); !errors.Is(err, want) {
			t.Errorf("time %d gave %v, want %v", i+1, err, want)
		}
	}
	if err := r.faults().set(stepSequencer, howHang, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.faults().at(ctx, stepSequencer); !errors.Is(err, errTestFault) {
		t.Errorf("a step that hangs gave %v at the end", err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/test/fail", http.NoBody))
	if got := strings.TrimSpace(w.Body.String()); got != `{"barrier":2,"sequencer":1}` {
		t.Errorf("fired: %s", got)
	}
	var none *stepFaults
	if err := none.at(t.Context(), stepBarrier); err != nil {
		t.Errorf("without hooks: %v", err)
	}
}

func TestTestAddressesAreDialledInThePlaceOfAMembers(t *testing.T) {
	t.Parallel()
	r := &replica{cfg: Config{
		Peers:         []Peer{{ID: "n1", Address: "127.0.0.1:1"}, {ID: "n2", Address: "127.0.0.1:2"}},
		TestAddresses: map[string]string{"n2": "127.0.0.1:9002"},
	}}
	for address, want := range map[string]string{"127.0.0.1:1": "127.0.0.1:1", "127.0.0.1:2": "127.0.0.1:9002", "127.0.0.1:3": "127.0.0.1:3"} {
		if got := r.reroute(address); got != want {
			t.Errorf("%s leads to %s, want %s", address, got, want)
		}
	}
	if (&replica{}).dialler() != nil {
		t.Error("without test addresses the dialler should be the usual one")
	}
}

// Whatever turns a time into a number, to be stored or to be compared with what is
// stored, must use the one clock that tests can set; silence, leases and time-outs use
// differences, which are monotonic.
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
