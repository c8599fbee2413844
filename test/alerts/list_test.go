package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/internal/telemetry"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/worker"
	"github.com/dtask/dtask/worker/metrics"
)

const (
	metricsPage = "docs/metrics.md"
	listBegins  = "<!-- begin: written by make generate -->\n"
	listEnds    = "<!-- end -->\n"
)

// The list in the docs is what the programs serve: name, type, labels and help of each
// metric. REWRITE=1 writes it.
func TestTheListOfMetricsIsComplete(t *testing.T) {
	t.Parallel()
	leader, follower := servedByCoordinators(t)
	common := served(t, page(t, telemetry.NewRegistry("v1")))
	registry := telemetry.NewRegistry("v1")
	registry.MustRegister(metrics.Collector(func() worker.Stats { return worker.Stats{} }))
	ofWorkers := served(t, page(t, registry))
	for _, list := range []map[string]metric{leader, follower, ofWorkers} {
		maps.DeleteFunc(list, func(name string, _ metric) bool { _, ok := common[name]; return ok })
	}
	maps.DeleteFunc(leader, func(name string, _ metric) bool { _, ok := follower[name]; return ok })
	maps.DeleteFunc(common, func(name string, _ metric) bool { return strings.HasPrefix(name, "go_") })
	want := "\n" + table("Every coordinator", follower) + table("The leader only", leader) +
		table("Workers", ofWorkers) + table("Every program", common)

	path := filepath.Join(root(t), metricsPage)
	text := read(t, path)
	before, rest, ok := strings.Cut(text, listBegins)
	got, after, okEnd := strings.Cut(rest, listEnds)
	if !ok || !okEnd {
		t.Fatalf("%s does not have the lines %q and %q", metricsPage, listBegins, listEnds)
	}
	if os.Getenv("REWRITE") != "" {
		if err := os.WriteFile(path, []byte(before+listBegins+want+listEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("%s does not list what the programs serve; run make generate:\n%s", metricsPage, differences(got, want))
	}
}

// A metric is what a program tells about one.
type metric struct {
	kind, help string
	labels     []string
}

// table is a section of the list.
func table(title string, list map[string]metric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", title)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		m := list[name]
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, m.kind, labels, m.help)
	}
	return b.String() + "\n"
}

// differences are the lines that only one of two texts has.
func differences(got, want string) string {
	var b strings.Builder
	had, has := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, line := range had {
		if !slices.Contains(has, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}

var (
	sample     = regexp.MustCompile(`^([a-z_0-9A-Z]+)(?:\{(.*)\})? \S+$`)
	labelNames = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
)

// served parses a page of metrics.
func served(t *testing.T, page string) map[string]metric {
	t.Helper()
	list := make(map[string]metric)
	family := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			list[name] = metric{help: help}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			m := list[name]
			m.kind, family = kind, name
			list[name] = m
			continue
		}
		parts := sample.FindStringSubmatch(line)
		if len(parts) < 3 || !strings.HasPrefix(parts[1], family) {
			t.Fatalf("not a line of metrics of %s: %q", family, line)
		}
		m := list[family]
		for _, label := range labelNames.FindAllStringSubmatch(parts[2], -1) {
			if label[1] != "le" && !slices.Contains(m.labels, label[1]) {
				m.labels = append(m.labels, label[1])
				slices.Sort(m.labels)
			}
		}
		list[family] = m
	}
	return list
}

// page is what a program with these metrics serves.
func page(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	telemetry.Handler(registry, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}

// servedByCoordinators returns the metrics of a leader and of a follower.
func servedByCoordinators(t *testing.T) (leader, follower map[string]metric) {
	t.Helper()
	var peers []coordinator.Peer
	for _, id := range []string{"n1", "n2", "n3"} {
		address, err := cluster.FreePort(t.Context())
		clustertest.Must(t, err)
		peers = append(peers, coordinator.Peer{ID: id, Address: address})
	}
	dirs := certificates(t, peers)
	var pages []*cluster.Coordinator
	for _, peer := range peers {
		pages = append(pages, &cluster.Coordinator{Process: &cluster.Process{Name: peer.ID}, HTTP: runCoordinator(t, peer, peers, dirs[peer.ID])})
	}
	clustertest.Must(t, cluster.Until(t.Context(), "one replica leads and another one follows", time.Minute, func(ctx context.Context) error {
		leader, follower = nil, nil
		for _, n := range pages {
			values, err := n.Metrics(ctx)
			if err != nil {
				return err
			}
			text, err := n.Page(ctx, "/metrics")
			member := strings.Contains(text, "dtask_cluster_info") && strings.Contains(text, "dtask_cluster_tasks_completed_total") // it has joined
			switch {
			case err != nil:
				return err
			case !member:
			case values["dtask_leader"] == 1 && strings.Contains(text, "dtask_tasks_ready"):
				leader = served(t, text)
			case !strings.Contains(text, "dtask_tasks_ready"):
				follower = served(t, text)
			}
		}
		if leader == nil || follower == nil {
			return cluster.ErrNotYet
		}
		return nil
	}))
	return leader, follower
}

// certificates returns directories with the certificates of replicas, which have more
// metrics than those without.
func certificates(t *testing.T, peers []coordinator.Peer) map[string]string {
	t.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.Now())
	clustertest.Must(t, err)
	dirs := make(map[string]string)
	for _, peer := range peers {
		key, err := tlsconf.NewKey()
		clustertest.Must(t, err)
		cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: peer.ID, Key: key.Public()}, time.Now())
		clustertest.Must(t, err)
		dirs[peer.ID] = t.TempDir()
		clustertest.Must(t, tlsconf.Save(dirs[peer.ID], cert, key, ca.Roots...))
	}
	return dirs
}

// runCoordinator runs a replica until the test ends, and returns its address for HTTP.
func runCoordinator(t *testing.T, peer coordinator.Peer, peers []coordinator.Peer, tlsDir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- coordinator.Run(ctx, coordinator.Config{
			ID: peer.ID, DataDir: t.TempDir(), Listen: peer.Address, HTTP: "127.0.0.1:0", Peers: peers, TLSDir: tlsDir, Version: "v1",
			Logger: slog.New(slog.DiscardHandler), MinFree: new(coordinator.MinFree),
			Started: func(_, http string) { started <- http },
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done // what it reports when all stop at once does not matter here
	})
	select {
	case http := <-started:
		return http
	case err := <-done:
		done <- err
		t.Fatalf("replica %s did not start: %v", peer.ID, err)
		return ""
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := cluster.Root()
	clustertest.Must(t, err)
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	clustertest.Must(t, err)
	return string(text)
}
