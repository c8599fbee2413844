package program

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestALogTailKeepsTheLastWholeLines(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 50, 64, 1000} {
		var out bytes.Buffer
		tail := NewLogTail(&out, size)
		for i := range 100 {
			fmt.Fprintf(tail, "line %d\n", i)
			got, all := string(tail.Bytes()), out.String()
			if !strings.HasSuffix(all, got) || len(got) > size {
				t.Fatalf("size %d: got %q", size, got)
			}
			if got != all && (len(got) < size-len("line 10\n") || all[len(all)-len(got)-1] != '\n') {
				t.Fatalf("size %d: got %q", size, got)
			}
		}
	}
}

func TestALineLongerThanTheTailIsNotKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tail := NewLogTail(&out, 8)
	fmt.Fprintln(tail, strings.Repeat("x", 20))
	if got := tail.Bytes(); len(got) != 0 || out.Len() != 21 {
		t.Errorf("got %q, and %d bytes passed on", got, out.Len())
	}
	fmt.Fprintln(tail, "short")
	if got := string(tail.Bytes()); got != "short\n" {
		t.Errorf("got %q", got)
	}
}
