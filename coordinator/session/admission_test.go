package session

import (
	"testing"
	"time"
)

// Ten thousand workers come at once and come again when they are told to. All
// are in within the time that the rate gives, nobody is let in faster than it
// allows, and nobody asks again and again.
func TestTenThousandWorkersComeBackAtTheRateOfAdmission(t *testing.T) {
	t.Parallel()
	const workers, rate = 10_000, 2000
	a := newAdmission(rate)
	begin := time.Now()
	due := make(map[time.Duration]int) // when they ask, in ms
	due[0] = workers
	done := make(map[time.Duration]int) // when they are open, in ms
	asked, in := 0, 0
	var last time.Duration
	for at := time.Duration(0); in < workers && at < time.Minute; at += time.Millisecond {
		for range done[at] {
			a.release(begin.Add(at))
		}
		for range due[at] {
			asked++
			wait, let := a.take(begin.Add(at))
			if let {
				in++
				last = max(last, at+wait)
				done[(at+wait).Truncate(time.Millisecond)+time.Millisecond]++
				continue
			}
			due[(at+wait).Truncate(time.Millisecond)+time.Millisecond]++
		}
		if most := int((at+maxAdmissionWait)*rate/time.Second) + rate/10 + 1; in > most {
			t.Fatalf("after %v %d are in, want at most %d", at, in, most)
		}
	}
	if limit := workers * time.Second / rate; in < workers || last > limit+limit/10 {
		t.Errorf("%d of %d were let in, the last after %v, want within %v", in, workers, last, limit)
	}
	if asked > 3*workers {
		t.Errorf("%d workers asked %d times", workers, asked)
	}
}

// Turns that nobody took are not saved up without bound.
func TestAPauseDoesNotLetEverybodyInAtOnce(t *testing.T) {
	t.Parallel()
	a := newAdmission(1000)
	now := time.Now().Add(time.Hour)
	free := 0
	for {
		wait, _ := a.take(now)
		a.release(now)
		if wait > 0 {
			break
		}
		free++
	}
	if free != 100 {
		t.Errorf("%d are let in at once, want a tenth of a second's", free)
	}
}
