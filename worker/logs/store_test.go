package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// open opens a store of the test's directory.
func open(t failer, dir string, l Limits) *Store {
	t.Helper()
	s, err := Open(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// failer is *testing.T or *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// text is what is kept of an attempt; "…N…" stands for omitted bytes.
func text(s *Store, a Attempt) (string, error) {
	var b strings.Builder
	next := uint64(0)
	err := s.Read(context.Background(), a, false, func(p Piece) error {
		if p.Offset > next {
			fmt.Fprintf(&b, "…%d…", p.Offset-next)
		}
		next = p.Offset + uint64(len(p.Data))
		if p.Stream == Stderr {
			fmt.Fprintf(&b, "<%s>", p.Data)
		} else {
			b.Write(p.Data)
		}
		return nil
	}, nil)
	return b.String(), err
}

func put(t *testing.T, s *Store, a Attempt, texts ...string) {
	t.Helper()
	w := s.Writer(a)
	for i, text := range texts {
		if err := w.Write([]Stream{Stdout, Stderr}[i%2], []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestOutputIsReadInTheOrderInWhichItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "logs") //nolint:usetesting // one for each of many runs
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		l := Limits{SegmentBytes: int64(rapid.IntRange(100, 2000).Draw(t, "segment")), MaxShared: rapid.IntRange(1, 500).Draw(t, "shared")}
		s := open(t, dir, l)
		want, writers := make(map[Attempt]string), make(map[Attempt]*Writer)
		check := func() {
			for a, w := range want {
				got, err := text(s, a)
				if (w == "") != (errors.Is(err, ErrNone) || got == "" && err == nil) || w != got {
					t.Fatalf("%v: got %q, %v, want %q", a, got, err, w)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			a := Attempt{Job: 1, Index: rapid.Uint32Range(0, 3).Draw(t, "task"), Attempt: rapid.Uint32Range(1, 2).Draw(t, "attempt")}
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			default:
				if _, seen := want[a]; seen && writers[a] == nil {
					continue // it has ended
				}
				if writers[a] == nil {
					writers[a] = s.Writer(a)
				}
				data := rapid.StringMatching(`[a-z]{0,80}`).Draw(t, "data")
				stream := rapid.SampledFrom([]Stream{Stdout, Stderr}).Draw(t, "stream")
				if err := writers[a].Write(stream, []byte(data)); err != nil {
					t.Fatal(err)
				}
				if stream == Stderr && data != "" {
					data = "<" + data + ">"
				}
				want[a] += data
			case 0:
				if writers[a] != nil {
					if err := writers[a].Close(); err != nil {
						t.Fatal(err)
					}
					delete(writers, a)
				}
			case 1:
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir, l)
				clear(writers)
			}
			check()
		}
	})
}

func TestManyShortOutputsShareFewFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	const n = 20_000
	for i := range uint32(n) {
		put(t, s, Attempt{1, i, 1}, fmt.Sprintf("line %d\n", i))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("got files %v, want a segment and its index", got)
	}
	s = open(t, dir, Limits{})
	for _, i := range []uint32{0, 1, n / 2, n - 1} {
		if got, err := text(s, Attempt{1, i, 1}); err != nil || got != fmt.Sprintf("line %d\n", i) {
			t.Errorf("task %d: got %q, %v", i, got, err)
		}
	}
	if _, err := text(s, Attempt{1, n, 1}); !errors.Is(err, ErrNone) {
		t.Errorf("a task without output: got %v", err)
	}
}

func TestOfALongOutputTheBeginningAndTheEndAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	a := Attempt{7, 0, 3}
	w := s.Writer(a)
	var want bytes.Buffer
	line := func(i int) string { return fmt.Sprintf("%099d\n", i) }
	const n = 100_000 // 10 MB
	for i := range n {
		if err := w.Write(Stdout, []byte(line(i))); err != nil {
			t.Fatal(err)
		}
		want.WriteString(line(i))
	}
	check := func() {
		t.Helper()
		var got bytes.Buffer
		omitted, next := 0, uint64(0)
		if err := s.Read(t.Context(), a, false, func(p Piece) error {
			if p.Offset > next {
				if omitted++; omitted > 1 || got.Len() < partBytes/2 {
					t.Fatalf("omitted %d bytes after %d", p.Offset-next, got.Len())
				}
				if !bytes.HasPrefix(want.Bytes(), got.Bytes()) {
					t.Fatal("the beginning differs")
				}
				want.Next(int(p.Offset)) //nolint:gosec // small
				got.Reset()
			}
			next = p.Offset + uint64(len(p.Data))
			got.Write(p.Data)
			return nil
		}, nil); err != nil {
			t.Fatal(err)
		}
		if omitted != 1 || !bytes.Equal(got.Bytes(), want.Bytes()) || got.Len() < partBytes/2 {
			t.Fatalf("the end has %d bytes, want %d; omitted %d times", got.Len(), want.Len(), omitted)
		}
		want.Reset()
		for i := range n {
			want.WriteString(line(i))
		}
	}
	check()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Limits{})
	check()
	size := int64(0)
	for _, name := range files(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 4*partBytes+partBytes/2 {
		t.Errorf("got %d bytes on disk", size)
	}
}

func TestAFollowerGetsWhatIsWrittenUntilTheEnd(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Limits{SegmentBytes: 4096, MaxShared: 2000})
	a := Attempt{1, 2, 3}
	w := s.Writer(a)
	var want strings.Builder
	var following sync.WaitGroup
	got := make([]strings.Builder, 3)
	for i := range got {
		following.Go(func() {
			if err := s.Read(t.Context(), a, true, func(p Piece) error { got[i].Write(p.Data); return nil }, func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 500 {
		text := fmt.Sprintf("line %d\n", i)
		if err := w.Write(Stdout, []byte(text)); err != nil {
			t.Fatal(err)
		}
		want.WriteString(text)
		put(t, s, Attempt{2, uint32(i), 1}, "other") //nolint:gosec // small
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	following.Wait()
	for i := range got {
		if got[i].String() != want.String() {
			t.Errorf("follower %d got %d bytes, want %d", i, got[i].Len(), want.Len())
		}
	}
	w = s.Writer(Attempt{3, 0, 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Read(ctx, Attempt{3, 0, 1}, true, nil, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a follower whose context is done: got %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestACrashLosesOnlyTheEnd(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"cut in a record": func(b []byte) []byte { return b[:len(b)-3] },
		"a wrong byte":    func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
		"zeros":           func(b []byte) []byte { return append(b, make([]byte, 4096)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir, Limits{})
			put(t, s, Attempt{1, 0, 1}, "first", "second")
			put(t, s, Attempt{1, 1, 1}, "last")
			path := segmentPath(dir, 1)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, Limits{}) // the process before did not close it
			if got, err := text(s, Attempt{1, 0, 1}); got != "first<second>" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			want, wantErr := "", ErrNone
			if name == "zeros" {
				want, wantErr = "last", nil
			}
			if got, err := text(s, Attempt{1, 1, 1}); got != want || !errors.Is(err, wantErr) {
				t.Errorf("the last one: got %q, %v; want %q, %v", got, err, want, wantErr)
			}
			put(t, s, Attempt{1, 2, 1}, "new")
			if got, err := text(s, Attempt{1, 2, 1}); got != "new" || err != nil {
				t.Errorf("afterwards: got %q, %v", got, err)
			}
		})
	}
}

func TestADamagedIndexIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	put(t, s, Attempt{1, 0, 1}, "text")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	index := s.segments[0].indexPath()
	good, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if err := os.WriteFile(index, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, Limits{})
		if got, err := text(s, Attempt{1, 0, 1}); got != "text" || err != nil {
			t.Fatalf("byte %d: got %q, %v", i, got, err)
		}
	}
}

func TestTheOldestOutputIsRemovedFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits Limits
		kept   int // at most, of 1,000 outputs of 100 bytes
	}{
		"bytes":    {Limits{Bytes: 20_000, SegmentBytes: 2000}, 140},
		"attempts": {Limits{Attempts: 100, SegmentBytes: 2000}, 120},
		"age":      {Limits{Age: 100 * time.Second, SegmentBytes: 2000}, 120},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir, c.limits)
			clock := time.Now()
			s.now = func() time.Time { return clock }
			const n = 1000
			for i := range uint32(n) {
				clock = clock.Add(time.Second)
				put(t, s, Attempt{1, i, 1}, strings.Repeat("x", 100))
			}
			kept := 0
			for i := range uint32(n) {
				_, err := text(s, Attempt{1, i, 1})
				if kept > 0 && err != nil {
					t.Fatalf("task %d: %v, but an older one is kept", i, err)
				}
				if err == nil {
					kept++
				}
			}
			if kept == 0 || kept > c.kept || kept < 50 {
				t.Errorf("got %d outputs", kept)
			}
		})
	}
}

func TestLongOutputsAreRemovedWithTheirAge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{Bytes: 5 << 20, MaxShared: 100})
	for i := range uint32(10) {
		put(t, s, Attempt{1, i, 1}, strings.Repeat("x", 2<<20))
	}
	_, err := text(s, Attempt{1, 0, 1})
	if gone, ok := errors.AsType[*GoneError](err); !ok || gone.Bytes != 2<<20 {
		t.Errorf("the first output: got %v, want its length", err)
	}
	if _, err := text(s, Attempt{1, 9, 1}); err != nil {
		t.Errorf("the last output: got %v", err)
	}
	parts := 0
	for _, name := range files(t, dir) {
		if strings.HasSuffix(name, partSuffix) {
			parts++
		}
	}
	if parts > 6 {
		t.Errorf("got %d files of long outputs", parts)
	}
}

func TestOtherFilesInTheDirectoryStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"x", "1-2-3.part", "1-2-3.4.part.bak", "0000000000000000.seg", "1.seg", "1-2-3.04.part", "-1-2-3.0.part"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, dir, Limits{Bytes: 1})
	put(t, s, Attempt{1, 1, 1}, "text")
	if got := files(t, dir); len(got) != 8 {
		t.Errorf("got %v", got)
	}
}

func TestOutputThatIsTooOldGoesAlthoughNothingIsWritten(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Limits{Age: 80 * time.Hour})
	clock := time.Now()
	s.now = func() time.Time { return clock }
	// A few lines a day must not keep those of the first day.
	for i := range uint32(20) {
		put(t, s, Attempt{1, i, 1}, "text")
		clock = clock.Add(8 * time.Hour)
	}
	s.Expire()
	for i, want := range map[uint32]error{7: ErrNone, 12: nil} { // 104 and 64 hours ago
		if _, err := text(s, Attempt{1, i, 1}); !errors.Is(err, want) {
			t.Errorf("output %d: got %v, want %v", i, err, want)
		}
	}
	if oldest := s.Oldest(); clock.Sub(oldest) > 96*time.Hour {
		t.Errorf("the oldest output is %v old", clock.Sub(oldest))
	}
	clock = clock.Add(90 * time.Hour)
	s.Expire()
	if got := files(t, s.dir); len(got) != 0 {
		t.Errorf("got files %v after a pause", got)
	}
	put(t, s, Attempt{2, 0, 1}, "text")
	if got, err := text(s, Attempt{2, 0, 1}); got != "text" || err != nil {
		t.Errorf("afterwards: got %q, %v", got, err)
	}
}

func TestOutputThatCannotBeStoredIsAGap(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Limits{})
	a := Attempt{1, 0, 1}
	w := s.Writer(a)
	write := func(text string) error { return w.Write(Stdout, []byte(text)) }
	if err := write("one"); err != nil {
		t.Fatal(err)
	}
	file := s.active().file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	s.active().file = full
	if err := write("lost"); err == nil {
		t.Error("got no error of a full disk")
	}
	s.active().file = file
	if err := write("two"); err != nil {
		t.Fatal(err)
	}
	s.active().file = full
	if err := write("end"); err == nil {
		t.Error("got no error of a full disk")
	}
	s.active().file = file
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := text(s, a); got != "one…4…two…3…" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got := s.Stats().Dropped; got != 7 {
		t.Errorf("got %d bytes dropped, want 7", got)
	}
}

func TestReadersAndRetentionDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Limits{Bytes: 100_000, SegmentBytes: 4096, MaxShared: 3000})
	var working sync.WaitGroup
	for job := range uint64(3) {
		working.Go(func() {
			for i := range uint32(300) {
				put(t, s, Attempt{job, i, 1}, strings.Repeat("x", 2000), strings.Repeat("y", int(i)*10))
			}
		})
		working.Go(func() {
			for i := range uint32(300) {
				_, err := text(s, Attempt{job, i, 1})
				_, gone := errors.AsType[*GoneError](err)
				if err != nil && !gone && !errors.Is(err, ErrNone) {
					t.Errorf("job %d, task %d: %v", job, i, err)
				}
			}
		})
	}
	working.Wait()
}

func TestNoOutputDiffersFromOutputThatIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{})
	put(t, s, Attempt{1, 0, 1})
	w := s.Writer(Attempt{1, 1, 1})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(Stdout, []byte("late")), s.Writer(Attempt{1, 2, 1}).Write(Stdout, []byte("late"))); !errors.Is(err, ErrClosed) {
		t.Errorf("writing to a closed store: got %v", err)
	}
	if got := files(t, dir); len(got) != 2 {
		t.Errorf("got files %v", got)
	}
	s = open(t, dir, Limits{})
	for i, want := range map[uint32]error{0: nil, 1: nil, 2: ErrNone} {
		if got, err := text(s, Attempt{1, i, 1}); got != "" || !errors.Is(err, want) {
			t.Errorf("task %d: got %q, %v, want %v", i, got, err, want)
		}
	}
}
