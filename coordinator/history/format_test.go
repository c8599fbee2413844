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
)

// A file of another build is refused and left unchanged: it is not damaged.
func TestAFileOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	l := filled(t, 20)
	path := filepath.Join(t.TempDir(), "history.db")
	l.replica(Config{Path: path}).apply().sync().stop()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		value, err := format.Open(metaKey, tx.Bucket(bucketMeta).Get(metaKey))
		if err != nil {
			return err
		}
		value = append([]byte{metaFormat - 1}, value[1:]...)
		return tx.Bucket(bucketMeta).Put(metaKey, format.Seal(metaKey, value))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
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
