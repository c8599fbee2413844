package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestWhatIsReadAheadIsHashedWithoutItsEndFrame(t *testing.T) {
	t.Parallel()
	for _, n := range []int{endFrame, endFrame + 1, aheadBlock - 1, aheadBlock, aheadBlock + 1, aheadBlock + endFrame - 1, aheadBlock + endFrame, 9*aheadBlock + 7} {
		file := bytes.Repeat([]byte("a backup"), n)[:n]
		for name, from := range map[string]io.Reader{"whole": bytes.NewReader(file), "halves": iotest.HalfReader(bytes.NewReader(file)), "with the end": iotest.DataErrReader(bytes.NewReader(file))} {
			sum := sha256.New()
			sum.Write([]byte("before"))
			a := readAhead(from, sum)
			got, err := io.ReadAll(a)
			a.stop()
			if err != nil || !bytes.Equal(got, file) {
				t.Errorf("%d bytes, %s: got %d, %v", n, name, len(got), err)
			}
			all := append([]byte("before"), file...)
			before, whole := a.sums()
			if before != sha256.Sum256(all[:len(all)-endFrame]) || whole != sha256.Sum256(all) {
				t.Errorf("%d bytes, %s: other checksums", n, name)
			}
		}
	}
}

func TestReadingAheadReturnsTheErrorAfterWhatWasRead(t *testing.T) {
	t.Parallel()
	disk := errors.New("disk")
	a := readAhead(io.MultiReader(bytes.NewReader(make([]byte, aheadBlock+5)), iotest.ErrReader(disk)), sha256.New())
	defer a.stop()
	if got, err := io.ReadAll(a); len(got) != aheadBlock+5 || !errors.Is(err, disk) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// The goroutine must not outlive a reader that refuses what it has read.
func TestAReaderThatEndsEarlyStopsReadingAhead(t *testing.T) {
	t.Parallel()
	chunks := make([]Chunk, 3*aheadQueue)
	for i := range chunks {
		chunks[i] = Chunk{Index: uint64(i) + 1, Job: 1, Data: make([]byte, aheadBlock)} //nolint:gosec // few
	}
	file, _, _ := sample(t, chunks...)
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if _, err := r.Finish(func(Chunk) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if _, more := <-r.ahead.blocks; more {
		t.Error("it still reads")
	}
}
