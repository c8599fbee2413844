package sequencer

import (
	"errors"
	"testing"
	"testing/synctest"
)

// counted is an item that takes several runs.
type counted struct{ left int }

func (x *counted) run(*batch) bool { x.left--; return x.left <= 0 }
func (x *counted) refuse(error)    {}

func TestWaitersOfEveryClassWakeWhenItHasCapacity(t *testing.T) {
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
				t.Errorf("class %d: still waiting although the class has capacity", c)
			}
			b.close(ErrTermEnded)
		})
	}
}

func TestTheBacklogDoesNotGrowWhileItIsExecuted(t *testing.T) {
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
		t.Errorf("%d submissions wait behind one and none was refused; the limit is %d", len(s.backlog[classSubmit]), s.cfg.InboxOthers)
	}
}

func TestItemsThatArriveDuringABacklogAreExecuted(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	late := &counted{left: 1}
	_ = s.inbox.put(classSubmit, &counted{left: 2})
	s.backlog.run(s.inbox, s.batches.next(s.view), classSubmit)
	_ = s.inbox.put(classSubmit, late)
	s.backlog.run(s.inbox, s.batches.next(s.view), classSubmit)
	if late.left != 0 && s.backlog.empty() {
		t.Error("an item is left in the inbox without a signal")
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
			t.Errorf("got %v, want ErrTermEnded", err)
		}
		if err := b.put(classWorker, &counted{}); !errors.Is(err, ErrTermEnded) {
			t.Errorf("put after the end of the term returned %v", err)
		}
	})
}
