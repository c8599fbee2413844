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

// maxRate is how many starts a rate allows in its period at most, and maxBurst at once. They
// are the bounds of the state machine.
const (
	maxRate       = 10_000_000
	maxRatePeriod = 86_400_000 // ms
	maxBurst      = 1_000_000
)

// ParseRate parses a rate, such as 50/s, 30/m, 1000/h or 5/d: a number from 1 to 10 million in
// a period, in ms.
func ParseRate(text string) (n, periodMS uint32, err error) {
	number, unit, found := strings.Cut(text, "/")
	for _, p := range ratePeriods {
		if p.unit == unit {
			periodMS = p.ms
		}
	}
	v, err := strconv.ParseUint(number, 10, 32)
	switch {
	case !found || periodMS == 0 || err != nil:
		return 0, 0, fmt.Errorf("%s is not a rate; write a whole number per second, minute, hour or day, such as 50/s, 30/m, 1000/h or 5/d", quote(text))
	case v == 0:
		return 0, 0, fmt.Errorf("%s lets nothing start; leave it out for an unlimited rate", quote(text))
	case v > maxRate:
		return 0, 0, fmt.Errorf("%s is out of range; must be at most %d", quote(text), maxRate)
	}
	return uint32(v), periodMS, nil
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
