package outgoing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

type message []string

// pack takes at most three speakers; who is called "silent" has nothing to say.
func pack(asked, notes []string) (*message, int) {
	var m message
	turns := min(len(asked), 3)
	for _, s := range asked[:turns] {
		if s != "silent" {
			m = append(m, s)
		}
	}
	for _, n := range notes {
		m = append(m, "note "+n)
	}
	if len(m) == 0 {
		return nil, turns
	}
	return &m, turns
}

func TestWhatIsSaidWhileAMessageIsOnItsWayGathersForTheNext(t *testing.T) {
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
		q.Ask("a")
		synctest.Wait() // a is on its way
		for _, s := range []string{"b", "silent", "c", "d", "e"} {
			q.Ask(s)
		}
		q.Note("n")
		free <- struct{}{}
		free <- struct{}{}
		free <- struct{}{}
		synctest.Wait()
		q.Ask("silent")
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if want := []string{"[a]", "[b c note n]", "[d e]"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

func TestThoseWhoJoinGoTogetherWhenTheLastOfThemHurries(t *testing.T) {
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
		q.Join("a")
		synctest.Wait()
		q.Join("b")
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("sent %v before all had joined", got)
		}
		q.Hurry()
		q.Hurry()
		synctest.Wait()
		q.Join("c")
		q.Ask("d") // takes along who has joined: nothing is left to hurry for
		synctest.Wait()
		q.Hurry()
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

func TestAStreamThatFailsEndsTheQueue(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	q := New[string, string, message]()
	q.Note("n")
	if err := q.Run(t.Context(), pack, func(*message) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestEachSpeakerThatAsksHasATurn(t *testing.T) {
	t.Parallel()
	const speakers, times = 8, 500
	q := New[string, string, message]()
	ctx, cancel := context.WithCancel(t.Context())
	for s := range speakers {
		go func() {
			for range times {
				q.Ask(fmt.Sprint(s))
			}
		}()
	}
	turns := make(map[string]int)
	left := speakers * times
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
	for s := range speakers {
		if turns[fmt.Sprint(s)] != times {
			t.Errorf("speaker %d had %d turns of %d", s, turns[fmt.Sprint(s)], times)
		}
	}
}
