package sequencer

import (
	"errors"
	"testing"
	"testing/synctest"
)

// counted is an item that notes how often it ran, and needs some runs.
type counted struct{ left int }

func (x *counted) run(*batch) bool { x.left--; return x.left <= 0 }
func (x *counted) refuse(error)    {}

func TestWhoWaitsForRoomInAnyClassIsWoken(t *testing.T) {
	t.Parallel()
	for c := range classCount {
		synctest.Test(t, func(t *testing.T) {
			b := newInbox(1, 1)
			if err := b.put(c, &counted{}); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- b.putWait(t.Context(), c, &counted{}) }()
			synctest.Wait()
			if n := len(b.take(c)); n != 1 {
				t.Fatalf("took %d items of class %d, want 1", n, c)
			}
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("class %d: got %v", c, err)
				}
			default:
				t.Errorf("class %d: still waits although there is room", c)
			}
			b.close(ErrTermEnded)
		})
	}
}

func TestTheBacklogDoesNotGrowWhileItIsWorkedOff(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	if err := s.inbox.put(classSubmit, &counted{left: 1000}); err != nil {
		t.Fatal(err)
	}
	refused := false
	for range 3 * s.cfg.InboxOthers {
		s.backlog.run(s.inbox, s.batches.next(s.view), classSubmit)
		var busy *BusyError
		if err := s.inbox.put(classSubmit, &counted{left: 1}); errors.As(err, &busy) {
			refused = true
			break
		}
	}
	if !refused {
		t.Errorf("%d submissions wait behind one, and no more are refused: the bound is %d", len(s.backlog[classSubmit]), s.cfg.InboxOthers)
	}
}

func TestWhatComesDuringABacklogIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	late := &counted{left: 1}
	_ = s.inbox.put(classSubmit, &counted{left: 2})
	s.backlog.run(s.inbox, s.batches.next(s.view), classSubmit)
	_ = s.inbox.put(classSubmit, late)
	s.backlog.run(s.inbox, s.batches.next(s.view), classSubmit)
	if late.left != 0 && s.backlog.empty() {
		t.Error("an item lies in the inbox, its signal may be gone, and nobody would look")
	}
}

func TestTheEndOfTheTermEndsAllWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newInbox(1, 1)
		_ = b.put(classWorker, &counted{})
		done := make(chan error, 1)
		go func() { done <- b.putWait(t.Context(), classWorker, &counted{}) }()
		synctest.Wait()
		b.close(ErrTermEnded)
		if err := <-done; !errors.Is(err, ErrTermEnded) {
			t.Errorf("got %v, want the term is over", err)
		}
		if err := b.put(classWorker, &counted{}); !errors.Is(err, ErrTermEnded) {
			t.Errorf("put after the end gave %v", err)
		}
	})
}
