package nemesis

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A process that was stopped carries out a setting whose call has timed out, after others that
// came later. A job then started 8 ms before its time, by a clock that nobody knew to be wrong.
func TestAClockThatIsSetLateIsCorrected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wrong, continues atomic.Bool
		time.AfterFunc(10*time.Second, func() { continues.Store(true) })
		time.AfterFunc(10*time.Second+lateSetting/2, func() { wrong.Store(true) })
		right := func(context.Context) error {
			if !continues.Load() {
				return errors.New("no answer")
			}
			wrong.Store(false)
			return nil
		}
		if err := correct(t.Context(), func() bool { return true }, right); err != nil {
			t.Error(err)
		}
		if wrong.Load() {
			t.Error("the clock is wrong")
		}
	})
}

func TestTheClockOfAProcessThatIsDownIsNotSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		right := func(context.Context) error { return errors.New("connection refused") }
		if err := correct(t.Context(), func() bool { return false }, right); err != nil {
			t.Error(err)
		}
	})
}
