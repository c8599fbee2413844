package process

import (
	"slices"
	"testing"

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
