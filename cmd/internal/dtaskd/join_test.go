package dtaskd

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/program"
	"github.com/dtask/dtask/test/cluster"
)

// founded is a cluster that dtaskd init has made in this process.
type founded struct {
	t     *testing.T
	dir   string         // short, because it has a socket
	addr  string         // of its coordinator
	admin *client.Client // through the socket
}

// printed is an io.Writer that takes what dtaskd init prints: it writes once, when it is done.
type printed chan string

func (p printed) Write(text []byte) (int, error) {
	p <- string(text)
	return len(text), nil
}

// initialize runs dtaskd init --now until the test ends. It returns once the command has
// printed its join strings: a command that ends before has failed.
func initialize(t *testing.T, more ...string) *founded {
	t.Helper()
	dir, err := os.MkdirTemp("", "init") //nolint:usetesting // that of the test is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	f := &founded{t: t, dir: dir, addr: freePort(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1) // the exit code
	stdout := make(printed, 1)
	var stderr bytes.Buffer
	data := filepath.Join(dir, "n1")
	go func() {
		args := []string{"init", "--advertise", f.addr, "--http", "", "--data-dir", data, "--cluster-name", "home", "--now"}
		ended <- run(ctx, append(args, more...), stdout, &stderr)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("dtaskd init: code %d, %s", code, stderr.String())
		}
		_ = os.RemoveAll(dir)
	})
	if f.admin, err = client.New(client.Config{Addrs: []string{"unix:" + filepath.Join(data, "dtaskd.sock")}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.admin.Close() })
	select {
	case text := <-stdout:
		if !strings.Contains(text, "dtaskctl login dtj1-") {
			t.Fatalf("dtaskd init printed %q", text)
		}
	case code := <-ended:
		ended <- code // for the cleanup, which reports it
		t.FailNow()
	}
	return f
}

func freePort(t *testing.T) string {
	t.Helper()
	addr, err := cluster.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// await polls a condition that the cluster makes true.
func (f *founded) await(what string, done func() bool) {
	f.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); !done(); <-tick.C {
		if time.Now().After(limit) {
			f.t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// joinString makes a join string, and returns its number.
func (f *founded) joinString(opts client.JoinTokenOptions) (text string, id uint64) {
	f.t.Helper()
	secret, made, err := f.admin.CreateJoinToken(f.t.Context(), opts)
	if err != nil {
		f.t.Fatal(err)
	}
	return secret.Reveal(), made.GetId()
}

// expired makes a join string that has expired.
func (f *founded) expired() string {
	f.t.Helper()
	text, id := f.joinString(client.JoinTokenOptions{Purpose: "coordinator", TTL: time.Millisecond, Uses: 1})
	f.await("the join string expires", func() bool {
		for made, err := range f.admin.JoinTokens(f.t.Context(), client.ListOptions{All: true}) {
			if err == nil && made.GetId() == id {
				return made.GetState() == "expired"
			}
		}
		return false
	})
	return text
}

// changed returns a join string with other fields.
func changed(t *testing.T, text string, change func(j *auth.JoinString)) string {
	t.Helper()
	j, err := auth.ParseJoinString(text, auth.JoinCoordinator)
	if err != nil {
		t.Fatal(err)
	}
	change(j)
	other, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	return other.Reveal()
}

// join runs dtaskd join in a new directory, and returns what it printed. Only a string that
// works leaves anything behind.
func (f *founded) join(text, name string, more ...string) (code int, stderr string) {
	f.t.Helper()
	var out bytes.Buffer
	dir := filepath.Join(f.dir, name)
	code = run(f.t.Context(), append([]string{"join", text, "--advertise", freePort(f.t), "--http", "", "--data-dir", dir}, more...), io.Discard, &out)
	if code != 0 {
		wantMissing(f.t, dir)
	}
	return code, out.String()
}

// Each fault has a message of its own, with what to do. Those of the text end with 2, and
// those of the cluster with 6.
func TestEachFaultOfAJoinStringOfACoordinatorIsNamed(t *testing.T) {
	t.Parallel()
	f := initialize(t)
	good, _ := f.joinString(client.JoinTokenOptions{Purpose: "coordinator", TTL: time.Hour, Uses: 1})
	revoked, id := f.joinString(client.JoinTokenOptions{Purpose: "coordinator", TTL: time.Hour, Uses: 1})
	if _, err := f.admin.RevokeJoinToken(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	worker, _ := f.joinString(client.JoinTokenOptions{Purpose: "worker", TTL: time.Hour, Uses: 1})
	elsewhere := strings.Repeat("f", 32)
	const another = ": dtaskctl join-token create coordinator makes another one"
	if code, stderr := f.join(good, "n2"); code != 0 {
		t.Fatalf("a good string: code %d, %s", code, stderr)
	}
	seen := make(map[string]string)
	for name, c := range map[string]struct {
		text string
		code int
		want []string
	}{
		"not one":         {f.addr, program.ExitUsage, []string{"not a join string: it must begin with dtj1-; dtaskctl join-token create makes one"}},
		"cut":             {good[:len(good)-5], program.ExitUsage, []string{"damaged join string", "it was cut or mistyped; copy it again"}},
		"another purpose": {worker, program.ExitRefused, []string{"is for a worker (dtask-worker --join STRING), not for a coordinator: dtaskctl join-token create coordinator makes one"}},
		"another cluster": {changed(t, good, func(j *auth.JoinString) { j.ClusterID, j.CAKey = elsewhere, [32]byte{1} }), program.ExitRefused, []string{
			"this join string is for cluster " + elsewhere + ", and cluster ", "answers at this address", "the trusted CA has sha256:01", "use a join string of that cluster",
		}},
		"another CA": {changed(t, good, func(j *auth.JoinString) { j.CAKey = [32]byte{1} }), program.ExitRefused, []string{
			"the CA of the cluster has changed since this join string was made", "or someone intercepts the connection", "sha256:01", "create another join string",
		}},
		"expired":        {f.expired(), program.ExitRefused, []string{"the join string expired at 20", another}},
		"used up":        {good, program.ExitRefused, []string{"the join string was used as often as it may be", another}},
		"revoked":        {revoked, program.ExitRefused, []string{"the join string was revoked at 20", another}},
		"another secret": {changed(t, good, func(j *auth.JoinString) { j.Secret[0]++ }), program.ExitRefused, []string{"the join string is unknown to this cluster", another}},
	} {
		code, stderr := f.join(c.text, "new")
		if code != c.code {
			t.Errorf("%s: code %d, want %d", name, code, c.code)
		}
		for _, part := range c.want {
			if !strings.Contains(stderr, part) {
				t.Errorf("%s: got %q, want %q in it", name, stderr, part)
			}
		}
		if strings.Contains(stderr, good[90:120]) || strings.Contains(stderr, c.text) {
			t.Errorf("%s: the secret is printed: %s", name, stderr)
		}
		if other := seen[stderr]; other != "" {
			t.Errorf("%s has the message of %s", name, other)
		}
		seen[stderr] = name
	}
}

// The last admin may end their own access over the network. The answer reports it, and the
// socket gives access again.
func TestTheLastAdminRevokesItselfAndTheSocketRemains(t *testing.T) {
	t.Parallel()
	f := initialize(t)
	for range 5 { // the revocation must not overtake its own answer
		text, _ := f.joinString(client.JoinTokenOptions{Purpose: "user", TTL: time.Hour, Uses: 1})
		j, err := client.ParseJoinString(client.Secret(text), "user")
		if err != nil {
			t.Fatal(err)
		}
		token := client.NewToken()
		joined, err := client.Join(t.Context(), client.Config{}, client.JoinOptions{String: j, Name: "you", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		trust, err := client.Trust{CA: joined.CA}.Credentials()
		if err != nil {
			t.Fatal(err)
		}
		you, err := client.New(client.Config{Addrs: joined.Addresses, Credentials: trust, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		got, err := you.RevokeToken(t.Context(), joined.Identity.GetId())
		if err != nil || !got.GetLastAdmin() || got.GetIdentity().GetState() != "revoked" {
			t.Errorf("got %v, %v", got, err)
		}
		if _, err := you.WhoAmI(t.Context()); err == nil {
			t.Error("the token still works")
		}
		if err := you.Close(); err != nil {
			t.Error(err)
		}
	}
	if who, err := f.admin.WhoAmI(t.Context()); err != nil || who.GetRole() != "admin" {
		t.Errorf("the socket: %v, %v", who, err)
	}
}

// A data directory keeps its log store, so that every later start must name the same one.
func TestTheLogStoreOfInitAndJoinIsInTheirSettings(t *testing.T) {
	t.Parallel()
	f := initialize(t, "--log-store", "wal")
	if _, err := os.Stat(filepath.Join(f.dir, "n1", "wal")); err != nil {
		t.Errorf("dtaskd init --log-store wal: %v", err)
	}
	stores := map[string]coordinator.LogStore{"n1": coordinator.LogWAL}
	for name, flags := range map[string][]string{"wal": {"--log-store", "wal"}, "bolt": {"--log-store=bolt"}, "default": nil} {
		text, _ := f.joinString(client.JoinTokenOptions{Purpose: "coordinator", TTL: time.Hour, Uses: 1})
		if code, stderr := f.join(text, name, flags...); code != 0 {
			t.Fatalf("join %q: code %d, %s", flags, code, stderr)
		}
		stores[name] = coordinator.LogBolt
	}
	stores["wal"] = coordinator.LogWAL
	for name, want := range stores {
		cfg, err := loadSettings(filepath.Join(f.dir, name, settingsFile), "warn", io.Discard)
		if err != nil || cfg.LogStore != want {
			t.Errorf("%s: its settings have the log store %q, %v, want %q", name, cfg.LogStore, err, want)
		}
	}
}
