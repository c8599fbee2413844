package process

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAProgramEndsWithItsLease(t *testing.T) {
	t.Parallel()
	for limit := 2 * time.Second; ; limit *= 2 {
		lease := new(Lease)
		began := Monotonic()
		lease.Renew(began + limit)
		p := shell(t, "trap '' TERM; sleep 600 & wait")
		p.Lease, p.KillGrace = lease, time.Hour
		_, err := programs.Run(t.Context(), p.Spec)
		if errors.Is(err, ErrTooLate) && limit < 30*time.Second {
			continue // the machine was too slow to start it
		}
		if took := Monotonic() - began; !errors.Is(err, ErrLeaseEnded) || took < limit/2 {
			t.Errorf("got %v after %v, want the end of the lease after %v", err, took, limit)
		}
		return
	}
}

func TestAProgramRunsWhileItsLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	for limit := 2 * time.Second; ; limit *= 2 {
		lease := new(Lease)
		end := Monotonic() + limit
		lease.Renew(end)
		inTime := false // it was renewed long before its end
		p := shell(t, fmt.Sprintf("echo started; sleep %d; exit 7", limit*3/2/time.Second))
		p.Lease, p.Stdout = lease, writerFunc(func(b []byte) (int, error) {
			lease.Renew(Monotonic() + time.Hour)
			lease.Renew(Monotonic() + limit/2) // an earlier end has no effect
			inTime = Monotonic() < end-limit/2
			return len(b), nil
		})
		exit, err := programs.Run(t.Context(), p.Spec)
		if (err != nil || !inTime) && limit < 30*time.Second {
			continue // the machine may be too slow
		}
		if err != nil || exit.Code != 7 || !inTime {
			t.Errorf("got %+v, %v; want exit code 7; renewed in time: %t", exit, err, inTime)
		}
		return
	}
}

func TestAProgramIsNotStartedAfterItsLease(t *testing.T) {
	t.Parallel()
	p := shell(t, "true")
	p.Lease = new(Lease)
	if _, err := programs.Run(t.Context(), p.Spec); !errors.Is(err, ErrTooLate) {
		t.Errorf("got %v, want %v", err, ErrTooLate)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
