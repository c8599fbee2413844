package spec

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurationsAreExact(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "500ms": 500 * time.Millisecond,
		"1.5h": 90 * time.Minute, "0.1s": 100 * time.Millisecond, "1d0h1ms": 24*time.Hour + time.Millisecond, "3650d": MaxDuration, "0.125d": 3 * time.Hour,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "s", "1", "-1s", "1w", "1s1m", "1.s", ".5s", "1,5s", "1 s", "1e3s", "0.0005s", "3651d", "9999999999999999999999d", "1S"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: got %v", s, got)
		}
	}
}

func TestSizesAreExact(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"0": 0, "512": 512, "1B": 1, "64MiB": 64 << 20, "1GB": 1e9, "1.5GiB": 3 << 29, "0.5KB": 500, "1024TiB": 1 << 50, "0.1KiB": -1, "1.25KiB": 1280,
	} {
		got, p := size(s)
		if want >= 0 && (p.bad() || got != want) || want < 0 && !p.bad() {
			t.Errorf("%q: got %d, %v, want %d", s, got, p, want)
		}
	}
}

func TestADurationThatGoWritesIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		want := time.Duration(rapid.Int64Range(0, MaxDuration.Milliseconds()).Draw(rt, "ms")) * time.Millisecond
		if got, err := ParseDuration(want.String()); err != nil || got != want {
			rt.Errorf("%v: got %v, %v", want, got, err)
		}
	})
}

func TestNumbersHaveSeparators(t *testing.T) {
	t.Parallel()
	if got := strings.Join([]string{count(-1234567), count(999), count(1000)}, " "); got != "-1,234,567 999 1,000" {
		t.Error(got)
	}
}
