package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// fakeRaft is consensus under the control of a test.
type fakeRaft struct {
	leaderCh  chan bool
	leading   atomic.Bool
	term      atomic.Uint64
	barrier   func(ctx context.Context) error // nil succeeds
	transfer  func(ctx context.Context) error // nil succeeds and loses leadership
	transfers atomic.Int32                    // calls of Transfer
}

func newFakeRaft() *fakeRaft { return &fakeRaft{leaderCh: make(chan bool, 1)} }

// elect makes the replica the leader of the next term.
func (r *fakeRaft) elect() {
	r.term.Add(1)
	r.leading.Store(true)
	r.leaderCh <- true
}

func (r *fakeRaft) depose() {
	r.leading.Store(false)
	r.leaderCh <- false
}

func (r *fakeRaft) LeaderCh() <-chan bool { return r.leaderCh }
func (r *fakeRaft) Leading() bool         { return r.leading.Load() }

func (r *fakeRaft) Barrier(ctx context.Context) (uint64, error) {
	if r.barrier != nil {
		if err := r.barrier(ctx); err != nil {
			return 0, err
		}
	}
	return r.term.Load(), nil
}

func (r *fakeRaft) Transfer(ctx context.Context) error {
	r.transfers.Add(1)
	if r.transfer != nil {
		return r.transfer(ctx)
	}
	r.depose()
	return nil
}

// duty is a Duty that calls a function.
type duty func(ctx context.Context, term uint64) error

func (duty) Name() string                                 { return "duty" }
func (d duty) Run(ctx context.Context, term uint64) error { return d(ctx, term) }

// running is a Run in progress.
type running struct {
	raft   *fakeRaft
	stop   context.CancelFunc
	result chan error
}

func run(t *testing.T, raft *fakeRaft, duties ...Duty) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{raft: raft, stop: cancel, result: make(chan error, 1)}
	go func() {
		r.result <- Run(ctx, Config{Raft: raft, Logger: slog.New(slog.DiscardHandler), Duties: duties})
	}()
	return r
}

// end stops the run and checks that it returns for that reason.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.result; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want context.Canceled", err)
	}
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

var errBroken = errors.New("broken")

func TestTermsNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			alive atomic.Int32
			terms []uint64
		)
		raft := newFakeRaft()
		r := run(t, raft, duty(func(ctx context.Context, term uint64) error {
			if n := alive.Add(1); n != 1 {
				t.Errorf("%d duties run concurrently", n)
			}
			defer alive.Add(-1)
			terms = append(terms, term)
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ErrTermEnded) && !errors.Is(cause, context.Canceled) {
				t.Errorf("the term ended with %v", cause)
			}
			time.Sleep(stopTimeout - time.Second) // slow to stop, in virtual time
			return nil
		}))
		raft.elect()
		synctest.Wait()
		raft.elect() // true after true: a term was lost in between
		synctest.Wait()
		raft.depose() // stays in the channel while the first term still stops
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := alive.Load(); n != 0 {
			t.Errorf("%d duties run on a follower", n)
		}
		raft.elect()
		synctest.Wait()
		r.end(t)
		if n := alive.Load(); n != 0 {
			t.Errorf("%d duties outlived Run", n)
		}
		if len(terms) != 3 || terms[0] != 1 || terms[2] != 3 {
			t.Errorf("terms led: %v, want 1, 2, 3", terms)
		}
	})
}

func TestFailedDutyStepsDown(t *testing.T) {
	for name, result := range map[string]error{"with an error": errBroken, "without an error": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raft := newFakeRaft()
				var ended atomic.Bool
				r := run(t, raft,
					duty(func(ctx context.Context, _ uint64) error {
						<-ctx.Done()
						time.Sleep(time.Second)
						ended.Store(true)
						return nil
					}),
					duty(func(context.Context, uint64) error { return result }))
				raft.elect()
				time.Sleep(time.Minute)
				synctest.Wait()
				if raft.transfers.Load() != 1 || raft.Leading() {
					t.Errorf("%d transfers, leading %v; want 1, false", raft.transfers.Load(), raft.Leading())
				}
				if !ended.Load() {
					t.Error("stepped down before the other duty ended")
				}
				r.end(t)
			})
		})
	}
}

func TestFailedBarrierStepsDown(t *testing.T) {
	for name, barrier := range map[string]func(context.Context) error{
		"it fails": func(context.Context) error { return errBroken },
		"it hangs": hangs,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raft := newFakeRaft()
				raft.barrier = barrier
				r := run(t, raft, duty(func(context.Context, uint64) error {
					t.Error("a duty started before the replica caught up")
					return nil
				}))
				raft.elect()
				time.Sleep(barrierTimeout + time.Millisecond)
				synctest.Wait()
				if raft.transfers.Load() != 1 || raft.Leading() {
					t.Errorf("%d transfers, leading %v; want 1, false", raft.transfers.Load(), raft.Leading())
				}
				r.end(t)
			})
		})
	}
}

func TestLeaderThatCannotStepDownEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raft := newFakeRaft()
		raft.transfer = hangs
		r := run(t, raft, duty(func(context.Context, uint64) error { return errBroken }))
		begin := time.Now()
		raft.elect()
		err := <-r.result
		if !errors.Is(err, errBroken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run returned %v, want both causes", err)
		}
		if took := time.Since(begin); took > transferTimeout {
			t.Errorf("stepping down failed after %v, want at most %v", took, transferTimeout)
		}
		r.stop()
	})
}

func TestSteppingDownWaitsForATransferInProgress(t *testing.T) {
	for name, depose := range map[string]bool{"that succeeds": true, "that fails": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raft := newFakeRaft()
				begin := time.Now()
				raft.transfer = func(context.Context) error {
					if time.Since(begin) < 500*time.Millisecond {
						return errBroken // raft allows one transfer at a time
					}
					if raft.leading.Load() {
						raft.depose()
					}
					return nil
				}
				r := run(t, raft, duty(func(context.Context, uint64) error { return errBroken }))
				raft.elect()
				if depose {
					time.Sleep(250 * time.Millisecond)
					raft.depose()
				}
				time.Sleep(transferTimeout)
				synctest.Wait()
				if raft.Leading() {
					t.Error("it still leads")
				}
				r.end(t)
			})
		})
	}
}

func TestLostLeadershipIsNotAFailureToStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raft := newFakeRaft()
		raft.barrier = func(context.Context) error {
			raft.leading.Store(false) // lost while catching up; LeaderCh has not reported it yet
			return errBroken
		}
		r := run(t, raft)
		raft.elect()
		synctest.Wait()
		raft.leaderCh <- false
		synctest.Wait()
		if raft.transfers.Load() != 0 {
			t.Error("a follower transferred leadership")
		}
		r.end(t)
	})
}

func TestStalledLeaderStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raft := newFakeRaft()
		var applied atomic.Uint64
		var pending atomic.Bool
		r := run(t, raft, Watchdog{Progress: func() (uint64, bool) { return applied.Load(), pending.Load() }})
		raft.elect()
		time.Sleep(time.Hour) // idle is not stalled
		pending.Store(true)
		for range 100 { // slow is not stalled
			time.Sleep(stallTimeout - 2*stallCheckInterval)
			applied.Add(1)
		}
		synctest.Wait()
		if raft.transfers.Load() != 0 {
			t.Fatal("a leader that makes progress stepped down")
		}
		time.Sleep(stallTimeout + 2*stallCheckInterval)
		synctest.Wait()
		if raft.transfers.Load() != 1 {
			t.Errorf("%d transfers, want 1", raft.transfers.Load())
		}
		r.end(t)
	})
}

func TestALeaderThatDoesNotServeInTimeStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raft := newFakeRaft()
		var serves atomic.Bool
		r := run(t, raft,
			duty(func(ctx context.Context, _ uint64) error { return hangs(ctx) }),
			Watchdog{
				Progress:    func() (uint64, bool) { return 0, false },
				Established: serves.Load,
				ScanTime:    func() time.Duration { return time.Second },
			})
		raft.elect()
		time.Sleep(establishTimeout + time.Second - 2*stallCheckInterval)
		synctest.Wait()
		if raft.transfers.Load() != 0 {
			t.Fatal("it stepped down within the time that the size of its state allows")
		}
		time.Sleep(3 * stallCheckInterval)
		synctest.Wait()
		if raft.transfers.Load() != 1 || raft.Leading() {
			t.Errorf("%d transfers, leading %v; want 1, false", raft.transfers.Load(), raft.Leading())
		}
		serves.Store(true)
		raft.elect()
		time.Sleep(time.Hour)
		synctest.Wait()
		if raft.transfers.Load() != 1 {
			t.Error("a leader that serves stepped down")
		}
		r.end(t)
	})
}

func TestADutyThatOutlivesItsTermEndsTheProcess(t *testing.T) {
	for name, begin := range map[string]func(*fakeRaft, chan struct{}) []Duty{
		"a duty after its term was lost": func(_ *fakeRaft, free chan struct{}) []Duty {
			return []Duty{duty(func(context.Context, uint64) error { <-free; return nil })}
		},
		"a duty after another one failed": func(_ *fakeRaft, free chan struct{}) []Duty {
			return []Duty{
				duty(func(context.Context, uint64) error { <-free; return nil }),
				duty(func(context.Context, uint64) error { return errBroken }),
			}
		},
		"the barrier": func(raft *fakeRaft, free chan struct{}) []Duty {
			raft.barrier = func(context.Context) error { <-free; return nil }
			return nil
		},
		"the transfer": func(raft *fakeRaft, free chan struct{}) []Duty {
			raft.transfer = func(context.Context) error { <-free; return errBroken }
			return []Duty{duty(func(context.Context, uint64) error { return errBroken })}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				raft := newFakeRaft()
				free := make(chan struct{})
				r := run(t, raft, begin(raft, free)...)
				raft.elect()
				synctest.Wait()
				if name == "a duty after its term was lost" {
					raft.depose()
				}
				if err := <-r.result; !errors.Is(err, ErrStuck) {
					t.Errorf("Run returned %v, want ErrStuck", err)
				}
				close(free)
				r.stop()
			})
		})
	}
}
