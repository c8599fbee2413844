package logs

import (
	"os"
	"strings"
	"testing"
)

func TestTheSizeOfAStoreIsThatOfItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, Limits{SegmentBytes: 4 << 10, MaxShared: 1 << 10})
	for i := range uint32(50) {
		put(t, s, Attempt{1, i, 1}, strings.Repeat("x", 500))
	}
	put(t, s, Attempt{2, 0, 1}, strings.Repeat("y", 100_000))
	open := s.Writer(Attempt{3, 0, 1})
	if err := open.Write(Stdout, []byte(strings.Repeat("z", 50_000))); err != nil {
		t.Fatal(err)
	}
	onDisk := int64(0)
	for _, name := range files(t, dir) {
		info, err := os.Stat(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		onDisk += info.Size()
	}
	const index = 4 << 10 // of the active segment: it is in memory
	if got := s.Stats().Bytes; got < onDisk || got > onDisk+index {
		t.Errorf("got %d bytes, want %d to %d", got, onDisk, onDisk+index)
	}
}
