package history

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/dtask/dtask/coordinator/history/format"
	"github.com/dtask/dtask/fsm"
)

// setFormat changes the format that a file states.
func setFormat(t *testing.T, path string, to byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		value, err := format.Open(metaKey, tx.Bucket(bucketMeta).Get(metaKey))
		if err != nil {
			return err
		}
		value = append([]byte{to}, value[1:]...)
		return tx.Bucket(bucketMeta).Put(metaKey, format.Seal(metaKey, value))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A file of another build is refused and left unchanged: it is not damaged.
func TestAFileOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	l := filled(t, 20)
	path := filepath.Join(t.TempDir(), "history.db")
	l.replica(Config{Path: path}).apply().sync().stop()
	setFormat(t, path, oldestFormat-1)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(Config{Path: path, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || isDamaged(err) || !strings.Contains(err.Error(), "format 3") || !strings.Contains(err.Error(), path) {
		t.Errorf("opening it gives %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	if _, err := os.Stat(path + quarantineSuffix); err == nil {
		t.Error("the file was quarantined")
	}
}

// A file that was written before records had summaries is read, and extended.
func TestAFileOfTheFormerFormatIsRead(t *testing.T) {
	t.Parallel()
	l := filled(t, 20)
	path := filepath.Join(t.TempDir(), "history.db")
	l.replica(Config{Path: path}).apply().sync().stop()
	setFormat(t, path, oldestFormat)
	l.do(&fsm.Archive{Items: []fsm.JobID{l.submit(shape{name: "new", state: fsm.JobCompleted})}})
	l.replica(Config{Path: path}).apply().sync().stop()
	r := l.replica(Config{Path: path}).apply()
	if n := r.Stats().Quarantined; n > 0 {
		t.Error("the file was quarantined")
	}
	r.check(Query{Name: "new"})
}
