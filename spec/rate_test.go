package spec

import (
	"strings"
	"testing"
)

func TestRatesAreParsedAndFormatted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"50/s", "30/m", "1000/h", "5/d", "10000000/s"} {
		r, err := ParseRate(text)
		if got := FormatRate(r.N, r.PeriodMS); err != nil || got != text {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	if r, err := ParseRate("50"); err != nil || FormatRate(r.N, r.PeriodMS) != "50/s" {
		t.Errorf("a number alone: got %v, %v; want it per second", r, err)
	}
	if got := FormatRate(3, 90_000); got != "3 in 1m30s" {
		t.Errorf("got %s", got)
	}
	for text, want := range map[string]string{
		"": "is not a rate", "0.5": "is not a rate", "50/": "is not a rate", "50/x": "is not a rate", "0.5/s": "is not a rate", "-1/s": "is not a rate", "/s": "is not a rate",
		"0/s": "allows nothing", "0": "allows nothing", "10000001/s": "is out of range",
	} {
		if _, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
