package faults

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/leader"
	"github.com/dtask/dtask/fsm"
)

func TestTheClockCanBeSetAndRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(time.Now)
		off := func(want time.Duration) {
			t.Helper()
			if got := c.now().Sub(time.Now().Round(0)); got != want {
				t.Errorf("got an offset of %v, want %v", got, want)
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
			t.Error("an offset of 146 million years: got no error")
		}
	})
}

// install returns a configuration with fault switches and its HTTP handler.
func install(t *testing.T, environment map[string]string) (coordinator.Config, http.Handler) {
	t.Helper()
	cfg := coordinator.Config{Logger: slog.New(slog.DiscardHandler)}
	if err := Install(&cfg, func(name string) (string, bool) { v, ok := environment[name]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	return cfg, cfg.Seams.HTTP(http.NotFoundHandler(), coordinator.Internals{
		Machine:  fsm.NewMachine(),
		Snapshot: func(context.Context) error { return errors.New("raft is not running") },
	})
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	_, h := install(t, nil)
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
		"unknown task":  {"/test/flip?job=1&task=0", "", "unknown task", 404},
		"no raft yet":   {"/test/snapshot", "", "raft is not running", 503},
		"other paths":   {"/metrics", "", "not found", 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, strings.NewReader(c.body)))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: got %d %q, want %d with %q", name, w.Code, w.Body, c.code, c.want)
		}
	}
}

// duty is a duty that succeeds.
type duty struct{ leader.Duty }

func (duty) Name() string                      { return stepSequencer }
func (duty) Run(context.Context, uint64) error { return nil }

// raft is a leader whose barrier succeeds.
type raft struct{ leader.Raft }

func (raft) Barrier(context.Context) (uint64, error) { return 7, nil }

func TestAStepFailsTheGivenNumberOfTimes(t *testing.T) {
	t.Parallel()
	cfg, h := install(t, nil)
	faulty := cfg.Seams.Raft(raft{})
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/test/fail?step=barrier&times=2", http.NoBody))
	for i, want := range []error{errFault, errFault, nil} {
		if term, err := faulty.Barrier(t.Context()); !errors.Is(err, want) || err == nil && term != 7 {
			t.Errorf("call %d: got %d, %v, want %v", i+1, term, err, want)
		}
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/test/fail?step=sequencer&how=hang", http.NoBody))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i, want := range []error{errFault, nil} {
		if err := cfg.Seams.Duty(duty{}).Run(ctx, 1); !errors.Is(err, want) {
			t.Errorf("run %d: got %v, want %v", i+1, err, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/test/fail", http.NoBody))
	if got := strings.TrimSpace(w.Body.String()); got != `{"barrier":2,"sequencer":1}` {
		t.Errorf("fired: %s", got)
	}
}

func TestTheEnvironmentSetsRoutesAndTrailingLogs(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	listening := strings.TrimPrefix(target.URL, "http://")
	cfg, _ := install(t, map[string]string{TrailingLogsVariable: "64", AddressesVariable: "127.0.0.1:2=" + listening})
	if cfg.TrailingLogs != 64 {
		t.Errorf("got %d trailing logs", cfg.TrailingLogs)
	}
	for _, address := range []string{"127.0.0.1:2", listening} {
		conn, err := cfg.Seams.Network.Dial(t.Context(), address)
		if err != nil {
			t.Errorf("dialing %s: %v", address, err)
			continue
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if cfg, _ := install(t, nil); cfg.Seams.Network != nil {
		t.Error("without routes: got a network other than TCP")
	}
	for name, value := range map[string]string{TrailingLogsVariable: "many", AddressesVariable: "127.0.0.1:2"} {
		cfg := coordinator.Config{Logger: slog.New(slog.DiscardHandler)}
		if err := Install(&cfg, func(n string) (string, bool) { return value, n == name }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
