package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A command that its killed worker leaves behind creates files until it ends, too.
func TestADirectoryIsRemovedAlthoughACommandStillWritesThere(t *testing.T) {
	t.Parallel()
	c := &Cluster{Dir: filepath.Join(t.TempDir(), "cluster")}
	if err := os.Mkdir(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var begun, writing sync.WaitGroup
	defer writing.Wait()
	for w := range 4 {
		begun.Add(1)
		writing.Go(func() {
			for i, until := 0, time.Now().Add(300*time.Millisecond); i < 500 || time.Now().Before(until); i++ {
				_ = os.WriteFile(filepath.Join(c.Dir, fmt.Sprint(w, "-", i)), nil, 0o600) // it may be gone
				if i == 100 {
					begun.Done()
				}
			}
		})
	}
	begun.Wait()
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory remains: %v", err)
	}
}
