package turns_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/internal/turns"
)

func TestTheLastThatAskedIsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		if !all.Take(time.Now()) {
			t.Fatal("a free turn was not given")
		}
		served := make(chan int, 3)
		for i := range 3 {
			go func() {
				if all.Take(time.Now().Add(time.Minute)) {
					served <- i
				}
			}()
			synctest.Wait()
		}
		for want := 2; want >= 0; want-- {
			all.End()
			if got := <-served; got != want {
				t.Errorf("%d was served, not %d", got, want)
			}
		}
		all.End()
		if !all.Take(time.Now()) {
			t.Error("a turn was lost")
		}
	})
}

func TestOneThatWaitedTooLongLeavesItsTurnToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := turns.New(1)
		all.Take(time.Now())
		since := time.Now()
		if all.Take(since.Add(time.Second)) {
			t.Error("two computed simultaneously")
		}
		if waited := time.Since(since); waited != time.Second { // virtual time
			t.Errorf("waited for %s", waited)
		}
		all.End()
		if !all.Take(time.Now()) {
			t.Error("the turn was given to one that had left")
		}
	})
}

// An overloaded port serves as many as it can: peers that give up and ask again do not
// keep each other from being served.
func TestAnOverloadedPortServesAtFullSpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			peers    = 1000
			work     = 10 * time.Millisecond // so that all of them need 10 s
			patience = 2 * time.Second
		)
		all := turns.New(1)
		served := make(chan time.Time, peers)
		begun := time.Now()
		for range peers {
			go func() {
				for gaveUp := true; gaveUp; {
					asked := time.Now()
					if !all.Take(asked.Add(3 * time.Second)) { // the port's own limit
						continue
					}
					time.Sleep(work) // virtual time
					all.End()
					gaveUp = time.Since(asked) > patience
				}
				served <- time.Now()
			}()
		}
		var last time.Time
		for range peers {
			last = <-served
		}
		if took := last.Sub(begun); took > 2*peers*work {
			t.Errorf("it took %s to serve work of %s", took, peers*work)
		}
	})
}
