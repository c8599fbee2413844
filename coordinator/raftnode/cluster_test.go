package raftnode

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/tlsconf"
	clusters "github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// testTimeout bounds every wait for a real process; it guards against hanging and
// measures nothing.
const testTimeout = 2 * time.Minute

// counter is a small FSM: it keeps the applied values in order.
type counter struct {
	reads atomic.Int64 // of snapshots

	mu     sync.Mutex
	values []uint64
}

func (c *counter) Apply(_, _ uint64, data []byte) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = append(c.values, binary.BigEndian.Uint64(data))
	return len(c.values)
}

func (c *counter) Snapshot() (Snapshot, error) { return counted(c.all()), nil }

func (c *counter) Restore(r io.Reader) (take func(), err error) {
	c.reads.Add(1)
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(data) < 4 || crc32.ChecksumIEEE(data[4:]) != binary.BigEndian.Uint32(data) {
		return nil, errors.New("the snapshot's checksum differs")
	}
	data = data[4:]
	var values []uint64
	for ; len(data) > 0; data = data[8:] {
		values = append(values, binary.BigEndian.Uint64(data))
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.values = values
	}, nil
}

func (c *counter) all() []uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.values)
}

type counted []uint64

func (c counted) Persist(w io.Writer) error {
	var data []byte
	for _, v := range c {
		data = binary.BigEndian.AppendUint64(data, v)
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(data)), data...))
	return err
}

func (counted) Release() {}

// network lets a test isolate a replica: its connections break, and new ones are
// refused, while the replica itself continues.
type network struct {
	delay  time.Duration        // of all links, in each direction
	ca     *tlsconf.CA          // nil: plaintext
	clocks map[string]time.Time // by server id, for dates of certificates; others are right
	certs  map[string]*atomic.Pointer[tlsconf.Replica]

	mu      sync.Mutex
	cut     map[string]bool        // by address
	refused map[[2]string]int      // from, to: refused dials
	conns   map[net.Conn][2]string // from, to
}

func newNetwork() *network {
	return &network{cut: make(map[string]bool), refused: make(map[[2]string]int), conns: make(map[net.Conn][2]string)}
}

func (w *network) dial(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		if w.refuses(from, to) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		conn, err := w.connect(ctx, to)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cut[from] || w.cut[to] {
			return nil, errors.Join(errors.New("cut off"), conn.Close())
		}
		w.conns[conn] = [2]string{from, to}
		return conn, nil
	}
}

func (w *network) refuses(from, to string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.refused[[2]string{from, to}]; !ok {
		return false
	}
	w.refused[[2]string{from, to}]++
	return true
}

// refuse makes a link refuse connections, as if nothing listened at its end; existing
// ones stay.
func (w *network) refuse(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused[[2]string{from, to}] = 0
}

// refusals returns how many dials were refused by refuse.
func (w *network) refusals(from, to string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[[2]string{from, to}]
}

// reset breaks the connections that one replica opened to another.
func (w *network) reset(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn, ends := range w.conns {
		if ends == [2]string{from, to} {
			_ = conn.Close()
			delete(w.conns, conn)
		}
	}
}

func (w *network) isolate(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[address] = true
	for conn, ends := range w.conns {
		if ends[0] == address || ends[1] == address {
			if far, ok := conn.(*slowConn); ok && ends[1] == address {
				_ = far.target.Close() // the other end learns of it a delay later
			} else {
				_ = conn.Close()
			}
			delete(w.conns, conn)
		}
	}
}

func (w *network) heal(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.cut, address)
}

// testNode is one replica and what it needs to restart.
type testNode struct {
	id, dir, address string
	net              *network
	peers            []Server
	kind             logstore.Kind // "": the value of DTASK_LOG_STORE
	tune             func(*Config)
	known            func(string) (string, bool)
	tls              *tlsconf.Peering

	fatals   fatals
	fsm      *counter
	identity *datadir.Dir
	mux      *transport.Mux
	stopMux  func()
	*Node
}

// newTestNode creates a replica with its port and data directory; it is not started
// yet.
func newTestNode(tb testing.TB, id string, w *network) *testNode {
	tb.Helper()
	if w == nil {
		w = newNetwork()
	}
	address, err := clusters.FreePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	n := &testNode{id: id, dir: tb.TempDir(), net: w, address: address}
	if w.ca != nil {
		n.tls = w.peering(tb, id)
	}
	n.listen(tb)
	tb.Cleanup(func() { n.stop(tb) })
	return n
}

func (n *testNode) listen(tb testing.TB) {
	tb.Helper()
	var base net.Listener
	var err error
	eventually(tb, "the port is free", func() bool { // while it does not listen, another connection may use its port
		base, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", n.address) //nolint:usetesting // stop closes it
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	if err != nil {
		tb.Fatal(err)
	}
	n.address = base.Addr().String()
	n.mux = transport.NewMux(base, quiet())
	if n.tls != nil {
		n.mux.Secure(*n.tls)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // stop ends it
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.mux.Run(ctx)
	}()
	n.stopMux = func() { cancel(); <-done }
	if n.identity, err = datadir.Open(n.dir, n.id); err != nil {
		tb.Fatal(err)
	}
}

func quiet() *slog.Logger {
	if os.Getenv("RAFTNODE_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// logStore returns the log store of the test, by default that of DTASK_LOG_STORE, so
// that all tests can be run over each.
func (n *testNode) logStore() logstore.Kind {
	return cmp.Or(n.kind, logstore.Kind(os.Getenv("DTASK_LOG_STORE")))
}

func (n *testNode) config(tb testing.TB) Config {
	tb.Helper()
	n.fsm = &counter{}
	cfg := Config{
		Identity: n.identity, DataDir: n.dir, Advertise: n.address, Listener: n.mux, FSM: n.fsm, Peers: n.peers,
		KnownInstance: n.known, Dial: n.net.dial(n.address), TLS: n.tls, Logger: quiet().With("id", n.id), Fatal: n.fatals.record,
		StoreHangTimeout: testTimeout, EnqueueTimeout: testTimeout, LogStore: n.logStore(),
		// On a busy machine a leader must not lose its term in the middle of a test.
		Heartbeat: 5 * time.Second, Election: 5 * time.Second,
	}
	if n.tune != nil {
		n.tune(&cfg)
	}
	return cfg
}

// start opens the node; bootstrap is nil for a restart or a join.
func (n *testNode) start(tb testing.TB, bootstrap []Server) {
	tb.Helper()
	cfg := n.config(tb)
	cfg.BootstrapServers = bootstrap
	if len(bootstrap) == 0 {
		cfg.Preloaded = Preload(tb.Context(), n.dir, cfg.FSM)
	}
	node, err := Open(cfg)
	if err != nil {
		tb.Fatalf("opening %s: %v", n.id, err)
	}
	n.Node = node
}

// stands makes a replica that is alone stand for election now, unless it leads already.
// On a slow machine raft may stand without answering in time.
func (n *testNode) stands(tb testing.TB) {
	tb.Helper()
	eventually(tb, n.id+" stands for election", func() bool {
		return n.Leading() || len(n.fatals.all()) > 0 || n.failover.stand() == nil
	})
}

// stop closes the replica; its data directory stays.
func (n *testNode) stop(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout) //nolint:usetesting // it also runs in cleanups
	defer cancel()
	if n.Node != nil {
		if err := n.Close(ctx); err != nil {
			tb.Errorf("closing %s: %v", n.id, err)
		}
		n.Node = nil
	}
	if n.stopMux != nil {
		n.stopMux()
		n.stopMux = nil
		if err := n.identity.Close(); err != nil {
			tb.Error(err)
		}
	}
}

func (n *testNode) restart(tb testing.TB) {
	tb.Helper()
	n.listen(tb)
	n.start(tb, nil)
}

type cluster []*testNode

// newCluster starts replicas that bootstrap a cluster, and returns when one leads and
// all others follow it.
func newCluster(tb testing.TB, count int, tune func(*Config)) cluster {
	tb.Helper()
	return newClusterOn(tb, newNetwork(), count, tune)
}

func newClusterOn(tb testing.TB, w *network, count int, tune func(*Config)) cluster {
	tb.Helper()
	var c cluster
	for i := range count {
		n := newTestNode(tb, fmt.Sprintf("n%d", i+1), w)
		n.tune = tune
		c = append(c, n)
	}
	peers := c.servers()
	for _, n := range c {
		n.peers = peers
		n.start(tb, peers)
	}
	eventually(tb, "all replicas know the leader", func() bool {
		return !slices.ContainsFunc(c, func(n *testNode) bool { id, _ := n.Leader(); return id == "" })
	})
	return c
}

func (c cluster) servers() []Server {
	var servers []Server
	for _, n := range c {
		servers = append(servers, Server{ID: n.id, Address: n.address, Voter: true})
	}
	return servers
}

// eventually polls a condition that a real cluster reaches in its own time.
func eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !f() {
		select {
		case <-deadline.C:
			tb.Fatalf("not within %v: %s", testTimeout, what)
		case <-ticker.C:
		}
	}
}

// leader waits for a leader that has committed an entry of its term.
func (c cluster) leader(tb testing.TB, except ...*testNode) *testNode {
	tb.Helper()
	var leader *testNode
	eventually(tb, "a leader", func() bool {
		for _, n := range c {
			if n.Node == nil || slices.Contains(except, n) || !n.Leading() {
				continue
			}
			if _, err := n.ReadIndex(tb.Context()); err == nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// valueEntry returns the entry of a value. Every fifth is large, so that its store
// needs several chunks.
func valueEntry(v uint64) []byte {
	entry := binary.BigEndian.AppendUint64(nil, v)
	if v%5 == 0 {
		entry = append(entry, make([]byte, 32<<10)...)
	}
	return entry
}

// propose proposes count values starting with first, a few in flight, and waits for
// all.
func (n *testNode) propose(tb testing.TB, first, count uint64) {
	tb.Helper()
	var flight []*Proposal
	var last uint64
	finish := func(p *Proposal) {
		_, index, err := p.Wait()
		if err != nil {
			tb.Fatalf("proposing at %s: %v", n.id, err)
		}
		if index <= last {
			tb.Fatalf("index %d after %d", index, last)
		}
		last = index
	}
	for v := first; v < first+count; v++ {
		flight = append(flight, n.Propose(valueEntry(v)))
		if len(flight) == 4 {
			finish(flight[0])
			flight = flight[1:]
		}
	}
	for _, p := range flight {
		finish(p)
	}
}

// holds waits until a replica has applied exactly the values 1 to count in order.
func (n *testNode) holds(tb testing.TB, count uint64) {
	tb.Helper()
	eventually(tb, fmt.Sprintf("%s has %d values", n.id, count), func() bool {
		return uint64(len(n.fsm.all())) >= count
	})
	for i, v := range n.fsm.all() {
		if v != uint64(i+1) {
			tb.Fatalf("%s: value %d is %d", n.id, i+1, v)
		}
	}
	if got := uint64(len(n.fsm.all())); got != count {
		tb.Errorf("%s has %d values, want %d", n.id, got, count)
	}
}

func (c cluster) wantNoFatals(tb testing.TB) {
	tb.Helper()
	for _, n := range c {
		if errs := n.fatals.all(); len(errs) != 0 {
			tb.Errorf("%s: fatal: %v", n.id, errs)
		}
	}
}

func hasSnapshot(tb testing.TB, dir string) bool {
	tb.Helper()
	names, err := snapshotNames(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return len(names) > 0
}

func rewrite(tb testing.TB, path string, change func([]byte)) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		tb.Fatal(err)
	}
	change(data)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
}

// fatals records the errors passed to Config.Fatal.
type fatals struct {
	mu   sync.Mutex
	errs []error
}

func (f *fatals) record(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *fatals) all() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.errs
}

// openStore opens the log store of a replica that is stopped.
func openStore(tb testing.TB, dir string, kind logstore.Kind) *logstore.Store {
	tb.Helper()
	contents, err := logstore.Inspect(dir)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := logstore.Open(logstore.Config{
		Dir: dir, Kind: kind, Contents: contents, HadEntries: true, HangTimeout: testTimeout,
		Fatal: func(err error) { tb.Error(err) }, Logger: quiet(), RaftLogger: newHCLog(quiet()),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// damageEntry flips a bit of an entry of a stopped replica, wherever its store has it.
func (n *testNode) damageEntry(tb testing.TB, index uint64) {
	tb.Helper()
	s := openStore(tb, n.dir, n.logStore())
	var log raft.Log
	if err := errors.Join(s.GetLog(index, &log), s.Close()); err != nil {
		tb.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(n.dir, "wal", "*.wal"))
	if err != nil {
		tb.Fatal(err)
	}
	found := 0
	for _, path := range append(files, filepath.Join(n.dir, logstore.FileName)) {
		rewrite(tb, path, func(content []byte) {
			for at := 0; ; found++ {
				next := bytes.Index(content[at:], log.Extensions) // the entry's checksum, which no other has
				if next < 0 {
					return
				}
				at += next + len(log.Extensions)
				content[at-1] ^= 1
			}
		})
	}
	if found == 0 {
		tb.Fatalf("entry %d is in no file", index)
	}
}
