package raftnode

import (
	"bytes"
	"errors"
	"testing"
)

// countedWriter is a writer that fails after some bytes.
type countedWriter struct {
	bytes.Buffer

	limit  int
	closed bool
}

var errFull = errors.New("full")

func (w *countedWriter) Write(b []byte) (int, error) {
	if w.Len()+len(b) > w.limit {
		return 0, errFull
	}
	return w.Buffer.Write(b)
}

func (w *countedWriter) Close() error {
	w.closed = true
	return nil
}

func TestWhatIsWrittenBehindIsWrittenInOrder(t *testing.T) {
	t.Parallel()
	to := &countedWriter{limit: 1 << 20}
	w := newWriteBehind(to)
	var want, block []byte
	for i := range 1000 {
		block = append(block[:0], bytes.Repeat([]byte{byte(i)}, i)...) // reused, as by the encoder
		want = append(want, block...)
		if n, err := w.Write(block); n != len(block) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
	}
	if err := w.Close(); err != nil || !to.closed || !bytes.Equal(to.Bytes(), want) {
		t.Errorf("wrote %d bytes, closed %v, %v, want %d", to.Len(), to.closed, err, len(want))
	}
}

func TestAnErrorOfWritingBehindIsReturned(t *testing.T) {
	t.Parallel()
	to := &countedWriter{limit: 100}
	w := newWriteBehind(to)
	failed := false
	for range 1000 {
		_, err := w.Write(make([]byte, 60))
		failed = failed || err != nil
	}
	if err := w.Close(); !failed || !errors.Is(err, errFull) || !to.closed {
		t.Errorf("failed %v, closed %v, %v", failed, to.closed, err)
	}
}
