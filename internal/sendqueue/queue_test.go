package sendqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
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
