package process

import (
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
	l := NewLog(filepath.Join(t.TempDir(), "log"), limits)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// text returns everything that a reader shows now.
func text(t *testing.T, r *LogReader, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := contents(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func contents(r *LogReader) (string, error) {
	var out strings.Builder
	buf := make([]byte, 32<<10)
	for offset := int64(0); ; {
		c, err := r.Read(offset, buf)
		if errors.Is(err, io.EOF) {
			return out.String(), nil
		}
		if err != nil {
			return "", err
		}
		out.WriteString(c.Gap())
		out.Write(c.Data)
		offset = c.Offset + int64(len(c.Data))
	}
}

func TestAShortLogIsThePlainOutput(t *testing.T) {
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

func TestALongLogKeepsItsHeadAndTail(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{Head: 10, Tail: 10})
	for i := range 100 {
		fmt.Fprintf(l, "line %02d\n", i)
	}
	want := "line 00\nli\n[dtask: 780 bytes omitted]\n8\nline 99\n"
	live, err := l.NewReader()
	if got := text(t, live, err); got != want {
		t.Errorf("live: %q, want %q", got, want)
	}
	if info, _ := os.Stat(l.path); info.Size() > 20 {
		t.Errorf("the file has %d bytes", info.Size())
	}
}

func TestALogMatchesTheReferenceModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		limits := LogLimits{Head: rapid.Int64Range(1, 40).Draw(t, "head"), Tail: rapid.Int64Range(1, 40).Draw(t, "tail")}
		l := NewLog(filepath.Join(dir, "log"), limits)
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
		r, err := l.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := contents(r); err != nil || r.Size() != int64(len(all)) || got != want {
			t.Fatalf("size %d of %d, got %q, %v, want %q", r.Size(), len(all), got, err, want)
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
		for at := int64(0); at < l.Size(); { // it sees each before the next is written
			at = <-seen
		}
	}
	_ = l.Close()
	follower.Wait()
	if followErr != nil || got.String() != want.String() {
		t.Errorf("got %q, %v", got.String(), followErr)
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
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

func TestAnOvertakenReaderSeesAGapAndNeverMixedBytes(t *testing.T) {
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

func TestARemovedLogStaysReadableForItsReaders(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{})
	_, _ = l.Write([]byte("before "))
	r, err := l.NewReader()
	if err := os.Remove(l.path); err != nil {
		t.Fatal(err)
	}
	_, _ = l.Write([]byte("after"))
	if got := text(t, r, err); got != "before after" {
		t.Errorf("got %q", got)
	}
}

func TestOpeningARemovedLogReturnsErrNotExist(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{})
	_, _ = l.Write([]byte("text"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Remove()
	if _, err := l.NewReader(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestALogWithoutOutputHasNoFile(t *testing.T) {
	t.Parallel()
	l := newLog(t, LogLimits{})
	before, err := l.NewReader() // opened while the log is empty
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if _, err := os.Stat(l.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file of an empty log: %v", err)
	}
	if got, err := contents(before); got != "" || err != nil {
		t.Errorf("empty log: got %q, %v", got, err)
	}
	_, _ = l.Write([]byte("text"))
	if got, err := contents(before); got != "text" || err != nil {
		t.Errorf("after a write: got %q, %v", got, err)
	}
	empty := newLog(t, LogLimits{})
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	empty.Remove()
	r, err := empty.NewReader()
	if got := text(t, r, err); got != "" {
		t.Errorf("closed empty log: got %q", got)
	}
}
