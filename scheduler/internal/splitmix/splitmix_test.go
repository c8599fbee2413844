package splitmix

import "testing"

// The first outputs of the reference version for seed 1234567.
func TestTheStreamIsThatOfTheReference(t *testing.T) {
	t.Parallel()
	src := New(1234567)
	want := []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821}
	for i, w := range want {
		if got := src.Next(); got != w {
			t.Errorf("number %d: got %d, want %d", i, got, w)
		}
	}
}

func TestBelowStaysBelowAndReachesEveryNumber(t *testing.T) {
	t.Parallel()
	src := New(7)
	if got := src.Below(0); got != 0 {
		t.Errorf("below 0: got %d, want 0", got)
	}
	var seen [10]int
	for range 10_000 {
		seen[src.Below(10)]++
	}
	for n, times := range seen {
		if times < 800 || times > 1_200 {
			t.Errorf("%d was drawn %d times of 10,000, want about 1,000", n, times)
		}
	}
}
