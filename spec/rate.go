package spec

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ratePeriods are the units of rates.
var ratePeriods = []struct {
	unit string
	ms   uint32
}{{"s", 1000}, {"m", 60_000}, {"h", 3_600_000}, {"d", 86_400_000}}

// maxRate is how many starts or submissions a rate allows in its period at most, and maxBurst
// at once. They are the bounds of the state machine.
const (
	maxRate       = 10_000_000
	maxRatePeriod = 86_400_000 // ms
	maxBurst      = 1_000_000
)

// Rate is a number of starts or submissions in a period.
type Rate struct{ N, PeriodMS uint32 }

// ParseRate parses a rate, such as 50/s, 30/m, 1000/h or 5/d: a number from 1 to 10 million in
// a period. A number alone is per second.
func ParseRate(text string) (Rate, error) {
	number, unit, found := strings.Cut(text, "/")
	if !found {
		unit = "s"
	}
	var r Rate
	for _, p := range ratePeriods {
		if p.unit == unit {
			r.PeriodMS = p.ms
		}
	}
	n, err := strconv.ParseUint(number, 10, 32)
	switch {
	case r.PeriodMS == 0 || err != nil:
		return Rate{}, fmt.Errorf("%s is not a rate; write a whole number per second, minute, hour or day, such as 50/s, 30/m, 1000/h or 5/d", quote(text))
	case n == 0:
		return Rate{}, fmt.Errorf("%s allows nothing; leave it out for an unlimited rate", quote(text))
	case n > maxRate:
		return Rate{}, fmt.Errorf("%s is out of range; must be at most %d", quote(text), maxRate)
	}
	r.N = uint32(n)
	return r, nil
}

// FormatRate is the reverse of ParseRate, and formats other periods, too.
func FormatRate(n, periodMS uint32) string {
	for _, p := range ratePeriods {
		if p.ms == periodMS {
			return fmt.Sprintf("%d/%s", n, p.unit)
		}
	}
	return fmt.Sprintf("%d in %s", n, time.Duration(periodMS)*time.Millisecond)
}

// rateFaults checks the settings of a rate, whose fields begin with a prefix.
func rateFaults(prefix string, n, periodMS, burst uint32) (faults Faults) {
	switch {
	case n == 0 && periodMS+burst > 0:
		faults = append(faults, Fault{Where: prefix + "rate", What: "missing", Do: "set it beside its period and burst"})
	case n > 0 && periodMS == 0:
		faults = append(faults, Fault{Where: prefix + "period_ms", What: "missing", Do: "set the period of the rate, such as 1000"})
	}
	for _, x := range []struct {
		field     string
		got, most uint32
	}{{"rate", n, maxRate}, {"period_ms", periodMS, maxRatePeriod}, {"burst", burst, maxBurst}} {
		if x.got > x.most {
			faults = append(faults, Fault{Where: prefix + x.field, What: fmt.Sprintf("%d is out of range", x.got), Do: fmt.Sprintf("must be at most %d", x.most)})
		}
	}
	return faults
}
