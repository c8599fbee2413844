package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/timescale"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

const (
	// hostileTimeout bounds every wait; it guards against hanging and measures nothing.
	hostileTimeout = 5 * time.Minute
	// calmTimeout is how long a call of a well-behaved client may take during an attack, on
	// a machine that runs the cluster, the attackers and other tests; times the time scale.
	calmTimeout = 2 * time.Minute
	// patience is the time scale of a cluster on a machine that other tests load for longer
	// than an election takes.
	patience timescale.Factor = 4
	// hostileVariable selects with "full" what needs a quiet machine: more connections, and
	// calmLimit.
	hostileVariable = "DTASK_HOSTILE"
	// calmLimit bounds the 99th percentile of the calls of a well-behaved client.
	calmLimit = time.Second
)

// isFullHostile reports whether the machine is quiet enough for calmLimit.
func isFullHostile() bool { return os.Getenv(hostileVariable) == "full" }

// attacked is a cluster of three with TLS, and the port of its leader.
type attacked struct {
	*testing.T
	leader, address string
	scale           timescale.Factor
	dirs            []string // data directories
	trust           tlsconf.Trust
	token           auth.Token
	ca              *tlsconf.CA
	creds           credentials.TransportCredentials
	calm            *client.Client // knows all coordinators
}

// opened is a network on which one port was opened before, so that others know it.
type opened struct {
	tcp
	port net.Listener
}

// Listen implements Network.
func (o opened) Listen(context.Context, string) (net.Listener, error) { return o.port, nil }

// newAttacked starts a cluster. It has a patient election timeout: an attack must not
// starve the heartbeats for as long as that, and other tests may.
func newAttacked(t *testing.T) *attacked {
	t.Helper()
	return newScaled(t, 1)
}

// newScaled starts a cluster whose times are multiplied by a factor.
func newScaled(t *testing.T, scale timescale.Factor) *attacked {
	t.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	heartbeat := 15 * time.Second // other tests may delay those of a leader, too
	if isFullHostile() {
		heartbeat = 3 * time.Second
	}
	dir := shortDir(t)
	var cfgs []Config
	var peers []Peer
	for _, id := range []string{"n1", "n2", "n3"} {
		key, err := tlsconf.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			ID: id, DataDir: filepath.Join(dir, id), TLSDir: filepath.Join(dir, id+".tls"), MinFree: new(MinFree),
			Logger: slog.New(slog.DiscardHandler), RaftHeartbeat: scale.Scale(heartbeat), TimeScale: scale,
		}
		port, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := tlsconf.Save(cfg.TLSDir, cert, key, ca.Roots...); err != nil {
			t.Fatal(err)
		}
		cfg.Listen, cfg.Seams.Network = port.Addr().String(), opened{newTCP(), port}
		peers, cfgs = append(peers, Peer{ID: id, Address: cfg.Listen}), append(cfgs, cfg)
	}
	a := &attacked{T: t, scale: scale, trust: tlsconf.Trust{Roots: ca.Roots}, ca: ca}
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // ended below
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	for _, cfg := range cfgs {
		cfg.Peers = peers
		running.Go(func() {
			if err := Run(ctx, cfg); err != nil {
				t.Errorf("%s stopped: %v", cfg.ID, err)
			}
		})
	}
	a.findLeader(cfgs[0].Socket())
	var addresses []string
	for _, cfg := range cfgs {
		addresses, a.dirs = append(addresses, cfg.Listen), append(a.dirs, cfg.DataDir)
		if cfg.ID == a.leader {
			a.address = cfg.Listen
			a.makeToken(cfg.Socket())
		}
	}
	creds, err := client.TLS(filepath.Join(cfgs[0].TLSDir, tlsconf.CAFile))
	if err != nil {
		t.Fatal(err)
	}
	a.creds = creds
	a.calm = a.client(client.Config{Addrs: addresses, Credentials: creds, Token: a.token.Text(), Timeout: hostileTimeout})
	return a
}

// findLeader waits for a leader.
func (a *attacked) findLeader(socket string) {
	a.Helper()
	local := a.client(client.Config{Addrs: []string{"unix:" + socket}})
	a.await("leader", func() (bool, error) {
		who, err := local.Identify(a.Context())
		if err == nil {
			a.leader = who.GetLeaderId()
		}
		return a.leader != "", err
	})
}

// makeToken makes the token of an admin over the socket of the leader, once the level of the
// cluster allows it.
func (a *attacked) makeToken(socket string) {
	a.Helper()
	local := a.client(client.Config{Addrs: []string{"unix:" + socket}})
	a.await("token", func() (bool, error) {
		token, _, err := local.CreateToken(a.Context(), client.TokenOptions{Name: "calm", Role: "admin"})
		if err == nil {
			a.token, err = auth.ParseToken(token.Reveal())
		}
		return err == nil, err
	})
}

// await polls a condition that other goroutines make true.
func (a *attacked) await(what string, done func() (bool, error)) {
	a.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(hostileTimeout); ; <-tick.C {
		ok, err := done()
		if ok {
			return
		}
		if time.Now().After(limit) {
			a.Fatalf("no %s: %v", what, err)
		}
	}
}

// client makes a client that is closed when the test ends.
func (a *attacked) client(cfg client.Config) *client.Client {
	a.Helper()
	c, err := client.New(cfg)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = c.Close() })
	return c
}

// status is that of the cluster.
func (a *attacked) status() *dtaskv1.StatusResponse {
	a.Helper()
	st, err := a.calm.ClusterStatus(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return st
}

// under runs an attack on the leader while a client continues to work, and checks that it was
// always answered and that the leader is the same.
func (a *attacked) under(name string, attack func(t *testing.T)) {
	a.Run(name, func(t *testing.T) {
		before := a.status()
		over := make(chan struct{})
		var took []time.Duration // of each call; the client's
		timed := func(call func() error) error {
			began := time.Now()
			err := call()
			took = append(took, time.Since(began))
			return err
		}
		var calm sync.WaitGroup
		calm.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ended := false; !ended; {
				select {
				case <-over: // one more call, so that there is one: some attacks end at once
					ended = true
				case <-tick.C:
				}
				began := time.Now()
				if err := a.workTimed(t.Context(), timed); err != nil {
					t.Errorf("a well-behaved client got %v after %s", err, time.Since(began))
				}
			}
		})
		func() {
			// Also if the attack ends the test: the client reports to it.
			defer calm.Wait()
			defer close(over)
			attack(t)
		}()
		slices.Sort(took)
		p99, slowest := took[min(len(took)-1, len(took)*99/100)], took[len(took)-1]
		t.Logf("%d calls during the attack and after it: p99 %s, the slowest took %s", len(took), p99.Round(time.Millisecond), slowest.Round(time.Millisecond))
		if isFullHostile() && p99 > calmLimit {
			t.Errorf("the 99th percentile of a well-behaved client's calls is %s, want at most %s", p99, calmLimit)
		}
		if after := a.status(); after.GetLeader() != before.GetLeader() || after.GetTerm() != before.GetTerm() {
			t.Errorf("the leader changed: %s of term %d, then %s of term %d", before.GetLeader(), before.GetTerm(), after.GetLeader(), after.GetTerm())
		}
	})
}

// work is what well-behaved clients do: a change, a read that the leader confirms, and
// another connection.
func (a *attacked) work(ctx context.Context) error {
	return a.workTimed(ctx, func(call func() error) error { return call() })
}

// workTimed is work whose calls are run by timed.
func (a *attacked) workTimed(ctx context.Context, timed func(call func() error) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.scale.Scale(calmTimeout))
	defer cancel()
	job, err := spec.Single(spec.SingleTask{Type: "noop", Name: "calm"})
	if err != nil {
		return err
	}
	var stored client.Submitted
	err = timed(func() (err error) {
		stored, err = a.calm.Submit(ctx, job, client.SubmitOptions{})
		return err
	})
	if err == nil {
		err = timed(func() error {
			_, err := a.calm.Job(ctx, stored.ID, client.ReadOptions{})
			return err
		})
	}
	return errors.Join(err, timed(func() error { return a.connects(ctx) }))
}

// connects completes a handshake of another client.
func (a *attacked) connects(ctx context.Context) error {
	conn, err := dialSecured(ctx, a.address, a.trust.Config(nil, nil))
	if err == nil {
		_ = conn.Close() // the coordinator may have closed it, since nothing follows
	}
	return err
}

// spare is how many connections to this process an attack may open: each takes two of the
// files that it may have.
func (a *attacked) spare(want int) int {
	a.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		a.Fatal(err)
	}
	return max(1, min(want, int(min(limit.Cur, 1<<20)/2)-500)) //nolint:gosec // at most 2^19
}
