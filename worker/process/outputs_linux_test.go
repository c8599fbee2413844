package process

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// namedWriter notes who wrote what.
type namedWriter struct {
	name string
	list *[]string
}

func (w namedWriter) Write(p []byte) (int, error) {
	*w.list = append(*w.list, w.name+" "+string(p))
	return len(p), nil
}

func TestOutputIsReadInTheOrderInWhichThePipesBecameReadable(t *testing.T) {
	t.Parallel()
	for _, first := range []int{1, 2} {
		var got []string
		p := &stdio{}
		for i, name := range map[int]string{1: "stdout", 2: "stderr"} {
			if err := p.openOutput(i, namedWriter{name, &got}, name); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.outputs.watch(); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{first, 3 - first, first} {
			if _, err := unix.Write(p.child[i], []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		p.closeChild()
		p.copyOutputs()
		want := []string{"stdout xx", "stderr x"}
		if first == 2 {
			want = []string{"stderr xx", "stdout x"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := p.finish(); err != nil {
			t.Error(err)
		}
	}
}

// A process that was stopped for longer than the deadline finds both when it continues.
func TestOutputThatIsThereAtTheDeadlineIsNotLost(t *testing.T) {
	t.Parallel()
	var got []string
	p := &stdio{}
	if err := errors.Join(p.openOutput(1, namedWriter{"stdout", &got}, "stdout"), p.outputs.watch()); err != nil {
		t.Fatal(err)
	}
	if err := p.outputs.ready.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if ready, err := p.outputs.wait(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without output: got %v, %v", ready, err)
	}
	if _, err := unix.Write(p.child[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if ready, err := p.outputs.wait(); len(ready) != 1 || err != nil {
		t.Errorf("with output: got %v, %v", ready, err)
	}
	p.closeChild()
	if err := p.finish(); err != nil {
		t.Error(err)
	}
}
