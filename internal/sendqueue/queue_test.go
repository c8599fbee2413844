package sendqueue

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type message []string

// pack polls at most three sources. The source "silent" never has data.
func pack(sources, items []string) (*message, int) {
	var m message
	turns := min(len(sources), 3)
	for _, s := range sources[:turns] {
		if s != "silent" {
			m = append(m, s)
		}
	}
	for _, n := range items {
		m = append(m, "item "+n)
	}
	if len(m) == 0 {
		return nil, turns
	}
	return &m, turns
}

func TestSourcesAddedDuringASendShareTheNextMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New[string, string, message]()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		free := make(chan struct{})
		ended := make(chan error)
		go func() {
			ended <- q.Run(ctx, pack, func(m *message) error {
				got = append(got, fmt.Sprint(*m))
				<-free
				return nil
			})
		}()
		q.Add("a")
		synctest.Wait() // a is being sent
		for _, s := range []string{"b", "silent", "c", "d", "e"} {
			q.Add(s)
		}
		q.AddItem("n")
		free <- struct{}{}
		free <- struct{}{}
		free <- struct{}{}
		synctest.Wait()
		q.Add("silent")
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"[a]", "[b c item n]", "[d e]"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

func TestDeferredSourcesAreSentTogetherOnFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New[string, string, message]()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		ended := make(chan error)
		go func() {
			ended <- q.Run(ctx, pack, func(m *message) error {
				got = append(got, fmt.Sprint(*m))
				return nil
			})
		}()
		q.AddDeferred("a")
		synctest.Wait()
		q.AddDeferred("b")
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("sent %v before the flush", got)
		}
		q.Flush()
		q.Flush()
		synctest.Wait()
		q.AddDeferred("c")
		q.Add("d") // sends the deferred source too: nothing is left to flush
		synctest.Wait()
		q.Flush()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"[a b]", "[c d]"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

func TestRunReturnsTheErrorOfSend(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	q := New[string, string, message]()
	q.AddItem("n")
	if err := q.Run(t.Context(), pack, func(*message) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestEverySourceIsPolledAsOftenAsItWasAdded(t *testing.T) {
	t.Parallel()
	const sources, times = 8, 500
	q := New[string, string, message]()
	ctx, cancel := context.WithCancel(t.Context())
	for s := range sources {
		go func() {
			for range times {
				q.Add(fmt.Sprint(s))
			}
		}()
	}
	turns := make(map[string]int)
	left := sources * times
	err := q.Run(ctx, pack, func(m *message) error {
		for _, s := range *m {
			turns[s]++
			left--
		}
		if left == 0 {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for s := range sources {
		if turns[fmt.Sprint(s)] != times {
			t.Errorf("source %d was polled %d times, want %d", s, turns[fmt.Sprint(s)], times)
		}
	}
}

// An idle queue keeps no goroutine: the bubble of the test would not end with one.
func TestAnIdleQueueHasNoSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent [][]string
		q := New[struct{}, string, []string]()
		q.AddItem("before")
		q.Start(context.Background(), func(_ []struct{}, items []string) (*[]string, int) { return &items, 0 }, //nolint:usetesting // it must not end
			func(m *[]string) error { sent = append(sent, *m); return nil }, func(err error) { t.Error(err) })
		for _, item := range []string{"first", "second", "third"} {
			time.Sleep(time.Minute) // the sender before has ended
			q.AddItem(item)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := [][]string{{"before"}, {"first"}, {"second"}, {"third"}}; !reflect.DeepEqual(sent, want) {
			t.Errorf("sent %v, want %v", sent, want)
		}
	})
}

// Whatever is added while a sender ends is sent.
func TestNothingIsLostWhenSendersEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		total := 0
		q := New[struct{}, int, []int]()
		q.Start(ctx, func(_ []struct{}, items []int) (*[]int, int) { return &items, 0 },
			func(m *[]int) error { total += len(*m); return nil }, func(err error) { t.Error(err) })
		var adders sync.WaitGroup
		for pause := range 40 { // around the time for which a sender waits for more
			adders.Go(func() {
				for i := range 100 {
					time.Sleep(time.Duration(pause) * time.Millisecond)
					q.AddItem(i)
				}
			})
		}
		adders.Wait()
		synctest.Wait()
		if total != 4000 {
			t.Errorf("sent %d items, want 4000", total)
		}
	})
}

func TestAfterAFailureNothingIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		var sends int
		var failures []error
		q := New[struct{}, int, []int]()
		q.Start(t.Context(), func(_ []struct{}, items []int) (*[]int, int) { return &items, 0 },
			func(*[]int) error { sends++; return broken }, func(err error) { failures = append(failures, err) })
		for i := range 3 {
			q.AddItem(i)
			synctest.Wait()
		}
		if sends != 1 || len(failures) != 1 || !errors.Is(failures[0], broken) {
			t.Errorf("%d messages, failures %v", sends, failures)
		}
	})
}
