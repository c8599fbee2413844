package process

import (
	"errors"
	"testing"
	"time"
)

func TestAProgramEndsWithItsLease(t *testing.T) {
	t.Parallel()
	lease := new(Lease)
	lease.Renew(Monotonic() + 2*time.Second)
	p := shell(t, "trap '' TERM; sleep 600 & wait")
	p.Lease, p.KillGrace = lease, time.Hour
	began := Monotonic()
	_, err := programs.Run(t.Context(), p.Spec)
	if took := Monotonic() - began; !errors.Is(err, ErrLeaseEnded) || took < 1*time.Second {
		t.Errorf("got %v after %v, want the end of the lease after 2 s", err, took)
	}
}

func TestAProgramRunsWhileItsLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	lease := new(Lease)
	lease.Renew(Monotonic() + 2*time.Second)
	renewed := make(chan struct{})
	p := shell(t, "echo started; sleep 3; exit 7")
	p.Lease, p.Stdout = lease, writerFunc(func(b []byte) (int, error) {
		lease.Renew(Monotonic() + time.Hour)
		lease.Renew(Monotonic() + time.Second) // an earlier end has no effect
		close(renewed)
		return len(b), nil
	})
	exit, err := programs.Run(t.Context(), p.Spec)
	<-renewed
	if err != nil || exit.Code != 7 {
		t.Errorf("got %+v, %v; want exit code 7", exit, err)
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
