package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func newLog(t *testing.T, limits LogLimits) *Log {
	t.Helper()
	l, err := CreateLog(filepath.Join(t.TempDir(), "log"), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// text is everything that the reader shows.
func text(t *testing.T, r *LogReader, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	n, err := r.WriteTo(&out)
	if err != nil || n != int64(out.Len()) {
		t.Fatalf("WriteTo: %d of %d bytes, %v", n, out.Len(), err)
	}
	return out.String()
}

func TestALogThatFitsIsThePlainOutput(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{Head: 10, Tail: 10})
	_, _ = l.Write([]byte("0123456789"))
	_, _ = l.Write([]byte("abcdefghij"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(l.path); string(got) != "0123456789abcdefghij" {
		t.Errorf("file: %q", got)
	}
	if _, err := l.Write([]byte("x")); !errors.Is(err, ErrLogClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

func TestALogThatIsTooLongKeepsItsBeginningAndEnd(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{Head: 10, Tail: 10})
	for i := range 100 {
		fmt.Fprintf(l, "line %02d\n", i)
	}
	want := "line 00\nli\n[dtask: 780 bytes left out]\n8\nline 99\n"
	live, err := l.NewReader()
	if got := text(t, live, err); got != want {
		t.Errorf("live: %q, want %q", got, want)
	}
	// As after a crash: nobody closed it.
	dead, err := OpenLog(l.path)
	if got := text(t, dead, err); got != want {
		t.Errorf("reopened: %q, want %q", got, want)
	}
	if info, _ := os.Stat(l.path); info.Size() > 20+int64(trailerLength) {
		t.Errorf("the file has %d bytes", info.Size())
	}
}

func TestALogShowsWhatASlowAndObviousOneShows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		limits := LogLimits{Head: rapid.Int64Range(1, 40).Draw(t, "head"), Tail: rapid.Int64Range(1, 40).Draw(t, "tail")}
		l, err := CreateLog(filepath.Join(dir, "log"), limits)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var all []byte
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			p := []byte(rapid.StringMatching(`[a-z]{0,100}`).Draw(t, "chunk"))
			if n, err := l.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write: %d, %v", n, err)
			}
			all = append(all, p...)
		}
		want := string(all)
		if cut := int64(len(all)) - limits.Head - limits.Tail; cut > 0 {
			want = string(all[:limits.Head]) + Chunk{Skipped: cut}.Gap() + string(all[int64(len(all))-limits.Tail:])
		}
		for _, open := range []func() (*LogReader, error){l.NewReader, func() (*LogReader, error) { return OpenLog(l.path) }} {
			r, err := open()
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if _, err := r.WriteTo(&got); err != nil {
				t.Fatal(err)
			}
			if r.Size() != int64(len(all)) || got.String() != want {
				t.Fatalf("size %d of %d, got %q, want %q", r.Size(), len(all), got.String(), want)
			}
			r.Close()
		}
	})
}

func TestAFollowerSeesEverythingUntilTheLogEnds(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{})
	r, err := l.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := make(chan int64, 1)
	var got strings.Builder
	var followErr error
	var follower sync.WaitGroup
	follower.Go(func() {
		followErr = r.Follow(t.Context(), 0, func(c Chunk) error {
			got.WriteString(c.Gap())
			got.Write(c.Data)
			seen <- c.Offset + int64(len(c.Data))
			return nil
		})
	})
	var want strings.Builder
	for i := range 50 {
		n, _ := fmt.Fprintf(io.MultiWriter(l, &want), "line %d\n", i)
		_ = n
		for at := int64(0); at < l.Size(); { // it hears of each before the next is written
			at = <-seen
		}
	}
	_ = l.Close()
	follower.Wait()
	if followErr != nil || got.String() != want.String() {
		t.Errorf("got %q, %v", got.String(), followErr)
	}
}

func TestAFollowerGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{})
	r, err := l.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cause := errors.New("the user left")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, _ = l.Write([]byte("x"))
	err = r.Follow(ctx, 0, func(Chunk) error { cancel(cause); return nil })
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestAReaderThatIsOvertakenSeesAGapAndNeverMixedBytes(t *testing.T) {
	t.Parallel()
	// The byte at offset o is a function of o, so every read can be checked.
	const total = 1 << 20
	at := func(o int64) byte { return byte(o % 251) }
	l := newLog(t, LogLimits{Head: 100, Tail: 1000})
	r, err := l.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var writer sync.WaitGroup
	writer.Go(func() {
		for o := int64(0); o < total; {
			p := make([]byte, 97+o%500)
			for i := range p {
				p[i] = at(o + int64(i))
			}
			_, _ = l.Write(p)
			o += int64(len(p))
		}
		_ = l.Close()
	})
	next := int64(0)
	err = r.Follow(t.Context(), 0, func(c Chunk) error {
		if c.Offset != next+c.Skipped {
			return fmt.Errorf("chunk at %d, skipped %d, after %d", c.Offset, c.Skipped, next)
		}
		for i, b := range c.Data {
			if b != at(c.Offset+int64(i)) {
				return fmt.Errorf("wrong byte at %d", c.Offset+int64(i))
			}
		}
		next = c.Offset + int64(len(c.Data))
		return nil
	})
	writer.Wait()
	if err != nil || next != l.Size() {
		t.Errorf("read to %d of %d: %v", next, l.Size(), err)
	}
}

func TestOutputThatLooksLikeATrailerIsOutput(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	want := "some output" + string(LogLimits{Head: 5, Tail: 5}.trailer(100))
	if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenLog(path)
	if got := text(t, r, err); got != want {
		t.Errorf("got %q", got)
	}
}

func TestAMissingLogIsSaidToBeMissing(t *testing.T) {
	t.Parallel()
	if _, err := OpenLog(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
