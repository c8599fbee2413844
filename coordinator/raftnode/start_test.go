package raftnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
)

// stallingStart delays raft's first write, that of its term.
type stallingStart struct {
	logstore.Backend

	delay time.Duration
}

func (s stallingStart) Set(key, value []byte) error {
	time.Sleep(s.delay) // virtual
	return s.Backend.Set(key, value)
}

// The watchdog reports the write, which succeeds later. With an empty log raft reads
// nothing more from the store that has failed, and starts.
func TestAStartOnAStallingDiskLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine remains
		n := &testNode{id: "n1", dir: t.TempDir(), address: "127.0.0.1:1", net: newNetwork()}
		var err error
		if n.identity, err = datadir.Open(n.dir, n.id); err != nil {
			t.Fatal(err)
		}
		n.tune = func(cfg *Config) {
			cfg.Listener = transport.NewMux(bufconn.Listen(1), quiet())
			cfg.StoreHangTimeout = time.Second
			cfg.WrapStore = func(b logstore.Backend) logstore.Backend { return stallingStart{b, 2 * cfg.StoreHangTimeout} }
		}
		node, err := Open(n.config(t))
		if !errors.Is(err, logstore.ErrHang) {
			t.Errorf("got %v, %v, want ErrHang", node, err)
		}
		if err := n.identity.Close(); err != nil {
			t.Error(err)
		}
	})
}
