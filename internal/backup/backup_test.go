package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"testing/iotest"
	"time"
)

// sample returns a backup with two and a half frames of state and, if chunks are given, a
// history.
func sample(tb testing.TB, chunks ...Chunk) (file, state []byte, m Manifest) {
	tb.Helper()
	m = Manifest{
		ClusterID: "c1", ServerID: "n2", CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Version: "v1", Index: 7, Term: 3, Epoch: 2, Level: 1,
		Members: []Member{{"n1", "10.0.0.1:7460", true}}, Trust: [][]byte{{1, 2}}, History: len(chunks) > 0,
	}
	state = make([]byte, 2*stateFrame+stateFrame/2)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(state) // never fails
	var out bytes.Buffer
	w, err := NewWriter(&out, m)
	if err != nil {
		tb.Fatal(err)
	}
	for rest := state; len(rest) > 0; {
		n := min(len(rest), 100_000)
		if _, err := w.Write(rest[:n]); err != nil {
			tb.Fatal(err)
		}
		rest = rest[n:]
	}
	for _, c := range chunks {
		if err := w.Job(c); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes(), state, m
}

var someJobs = []Chunk{
	{Index: 4, Job: 1, Number: 1, Data: []byte("part")}, {Index: 4, Job: 1, Total: 1, Data: []byte("head")}, {Index: 5, Job: 2, Data: []byte("whole")},
}

// readAll reads a whole backup.
func readAll(from io.Reader) (m Manifest, state []byte, chunks []Chunk, totals Totals, err error) {
	r, err := NewReader(from)
	if err != nil {
		return m, nil, nil, totals, err
	}
	if state, err = io.ReadAll(r.State()); err != nil {
		return m, nil, nil, totals, err
	}
	totals, err = r.Finish(func(c Chunk) error {
		c.Data = bytes.Clone(c.Data)
		chunks = append(chunks, c)
		return nil
	})
	return r.Manifest(), state, chunks, totals, err
}

func TestABackupIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for name, chunks := range map[string][]Chunk{"without history": nil, "with history": someJobs} {
		file, state, m := sample(t, chunks...)
		for _, from := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file)), iotest.DataErrReader(bytes.NewReader(file))} {
			gotM, gotState, gotChunks, totals, err := readAll(from)
			if err != nil || !reflect.DeepEqual(gotM, m) || !bytes.Equal(gotState, state) || !reflect.DeepEqual(gotChunks, chunks) {
				t.Fatalf("%s: got %+v, %d bytes, %v, %v", name, gotM, len(gotState), gotChunks, err)
			}
			jobs := uint64(0)
			if chunks != nil {
				jobs = 2
			}
			if totals.Bytes != uint64(len(file)) || totals.StateBytes != uint64(len(state)) || totals.Jobs != jobs {
				t.Errorf("%s: got %+v", name, totals)
			}
		}
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Finish(nil); err != nil {
			t.Errorf("%s: without reading the state: %v", name, err)
		}
	}
}

func TestTheSumOfTheWholeFileIsKnown(t *testing.T) {
	t.Parallel()
	for _, chunks := range [][]Chunk{nil, someJobs} {
		file, _, _ := sample(t, chunks...)
		_, _, _, totals, err := readAll(bytes.NewReader(file))
		if err != nil || totals.Whole != sha256.Sum256(file) {
			t.Errorf("got %x, %v, want %x", totals.Whole, err, sha256.Sum256(file))
		}
	}
}

// A reader of the state checks each frame, and doesn't claim that the backup is complete.
func TestAReaderOfTheStateDoesNotFinish(t *testing.T) {
	t.Parallel()
	file, state, want := sample(t, someJobs...)
	r, err := NewStateReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.State())
	if err != nil || !bytes.Equal(got, state) || !reflect.DeepEqual(r.Manifest(), want) {
		t.Errorf("got %d bytes of state, %v", len(got), err)
	}
	if _, err := r.Finish(nil); err == nil {
		t.Error("it has checked the whole backup")
	}
	file[len(file)/2] ^= 1
	if r, err = NewStateReader(bytes.NewReader(file)); err == nil {
		_, err = io.ReadAll(r.State())
	}
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("a changed byte: %v", err)
	}
}

func TestABackupThatIsCutIsIncomplete(t *testing.T) {
	t.Parallel()
	file, _, _ := sample(t, someJobs...)
	for n := 0; n < len(file); n += 1 + n/7 {
		_, _, _, _, err := readAll(bytes.NewReader(file[:n]))
		want := ErrTruncated
		if n < len(magic) {
			want = ErrNotBackup
		}
		if !errors.Is(err, want) {
			t.Errorf("%d of %d bytes: got %v, want %v", n, len(file), err, want)
		}
	}
	if _, _, _, _, err := readAll(bytes.NewReader(file[:len(file)-1])); !errors.Is(err, ErrTruncated) {
		t.Errorf("without the last byte: got %v", err)
	}
}

func TestAChangedByteIsFound(t *testing.T) {
	t.Parallel()
	file, _, _ := sample(t, someJobs...)
	for at := 0; at < len(file); at += 1 + at/50 {
		changed := bytes.Clone(file)
		changed[at] ^= 1 << (at % 8)
		if _, _, _, _, err := readAll(bytes.NewReader(changed)); err == nil {
			t.Errorf("byte %d of %d may be changed", at, len(file))
		}
	}
}

// Each frame has a checksum of its own, so only the SHA-256 and the counts find whole frames
// that are missing, doubled or exchanged.
func TestAMissingDoubledOrMovedFrameIsFound(t *testing.T) {
	t.Parallel()
	file, _, _ := sample(t, someJobs...)
	start := bytes.IndexByte(file[len(magic):], byte(frameState)) // the manifest is text
	start += len(magic)
	const size = frameHead + stateFrame + frameTail
	first, second, rest := file[start:start+size], file[start+size:start+2*size], file[start+2*size:]
	for name, parts := range map[string][][]byte{
		"missing": {file[:start], second, rest}, "doubled": {file[:start], first, first, second, rest},
		"moved": {file[:start], second, first, rest},
	} {
		if _, _, _, _, err := readAll(bytes.NewReader(bytes.Join(parts, nil))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestNothingMayFollowTheEnd(t *testing.T) {
	t.Parallel()
	file, _, _ := sample(t)
	for _, more := range [][]byte{{0}, file} {
		if _, _, _, _, err := readAll(bytes.NewReader(append(bytes.Clone(file), more...))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes more: got %v", len(more), err)
		}
	}
}

func TestOnlyAnnouncedHistoryIsWrittenAndRead(t *testing.T) {
	t.Parallel()
	w, err := NewWriter(io.Discard, Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if w.Job(Chunk{}) == nil || w.Close() == nil {
		t.Error("history was written without being announced")
	}
	if w, err = NewWriter(io.Discard, Manifest{History: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.Job(Chunk{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("state")); err == nil {
		t.Error("state was written after the history")
	}
}

// The errors of the streams are not mistaken for damage.
func TestErrorsOfTheStreamsReachTheCaller(t *testing.T) {
	t.Parallel()
	disk := errors.New("disk")
	file, _, _ := sample(t)
	for _, n := range []int{0, len(magic) + 3, len(file) - 1, len(file)} {
		from := io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(disk))
		if _, _, _, _, err := readAll(from); !errors.Is(err, disk) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrTruncated) {
			t.Errorf("after %d bytes: got %v", n, err)
		}
	}
	w, err := NewWriter(&failing{after: 2, err: disk}, Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 2*stateFrame)); !errors.Is(err, disk) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); !errors.Is(err, disk) {
		t.Errorf("closing: got %v", err)
	}
}

// failing is a writer that fails after some writes.
type failing struct {
	after int
	err   error
}

func (f *failing) Write(b []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, f.err
	}
	return len(b), nil
}

// Any input is read as a backup or refused. What is accepted is written the same again, and
// memory doesn't grow with lengths that are only claimed.
func FuzzReadBackup(f *testing.F) {
	for _, chunks := range [][]Chunk{nil, someJobs} {
		file, _, _ := sample(f, chunks...)
		f.Add(file)
		f.Add(file[:len(file)-20])
		f.Add(append(bytes.Clone(file), file...))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, state, chunks, totals, err := readAll(bytes.NewReader(file))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(8*len(file))+2*maxFrame+1<<20 {
			t.Fatalf("reading %d bytes allocated %d", len(file), n)
		}
		if err != nil {
			return
		}
		if totals.Bytes != uint64(len(file)) {
			t.Fatalf("read %d of %d bytes", totals.Bytes, len(file))
		}
		var again bytes.Buffer
		w, err := NewWriter(&again, m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(state); err != nil {
			t.Fatal(err)
		}
		for _, c := range chunks {
			if err := w.Job(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, twice, _, _, err := readAll(&again); err != nil || !bytes.Equal(twice, state) {
			t.Fatalf("written again: %v", err)
		}
	})
}
