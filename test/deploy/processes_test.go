//go:build linux

package deploy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

// sampleInterval is how often processes are listed. A dtaskctl that calls a cluster lives
// for longer.
const sampleInterval = 5 * time.Millisecond

// samples are the arguments and environments that the processes of a site have had.
type samples struct {
	namespaces map[string]bool
	texts      map[string]bool // each a process: arguments and environment
	stop       func()
}

// watchProcesses notes the arguments and environments of all processes on the machines, as
// ps shows them to users, until stop.
func (s *site) watchProcesses() *samples {
	s.t.Helper()
	w := &samples{namespaces: make(map[string]bool), texts: make(map[string]bool)}
	for _, m := range s.machines {
		link, err := m.host.Namespace()
		clustertest.Must(s.t, err)
		w.namespaces[link] = true
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(sampleInterval)
		defer tick.Stop()
		for {
			w.take()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	w.stop = func() {
		cancel()
		watching.Wait()
	}
	s.t.Cleanup(w.stop)
	return w
}

// take notes the present processes. Those that end meanwhile have no files.
func (w *samples) take() {
	const proc = "/proc/"
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		dir := proc + e.Name()
		if link, err := os.Readlink(filepath.Join(dir, "ns", "net")); err != nil || !w.namespaces[link] {
			continue
		}
		arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
		w.texts[string(arguments)+"\n"+string(environment)] = true
	}
}

// wantHidden checks that no process had a secret among its arguments or variables, and that
// processes with each of some words were seen.
func (w *samples) wantHidden(t *testing.T, hidden secrets, words ...string) {
	t.Helper()
	w.stop()
	for text := range w.texts {
		hidden.wantIn(t, "the process "+strings.ReplaceAll(text[:min(len(text), 60)], "\x00", " "), []byte(text))
	}
words:
	for _, word := range words {
		for text := range w.texts {
			if strings.Contains(text, word) {
				continue words
			}
		}
		t.Errorf("no process with %q was seen among %d", word, len(w.texts))
	}
}
