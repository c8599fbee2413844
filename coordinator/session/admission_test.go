package session

import (
	"testing"
	"time"
)

// Ten thousand workers connect simultaneously, and retry after the delays that
// they get. All are admitted within the time that the rate requires, never
// faster than it allows, and after few retries.
func TestTenThousandWorkersReconnectAtTheAdmissionRate(t *testing.T) {
	t.Parallel()
	const workers, rate = 10_000, 2000
	a := newAdmission(rate)
	begin := time.Now()
	due := make(map[time.Duration]int) // attempts to connect, by ms
	due[0] = workers
	done := make(map[time.Duration]int) // opened sessions, by ms
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
			t.Fatalf("%d admitted after %v, want at most %d", in, at, most)
		}
	}
	if limit := workers * time.Second / rate; in < workers || last > limit+limit/10 {
		t.Errorf("%d of %d workers admitted, the last after %v, want within %v", in, workers, last, limit)
	}
	if asked > 3*workers {
		t.Errorf("%d workers connected %d times", workers, asked)
	}
}

func TestUnusedTurnsAreBounded(t *testing.T) {
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
		t.Errorf("%d admitted at once, want a tenth of a second's", free)
	}
}
