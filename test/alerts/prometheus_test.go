package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// startLimit bounds what takes seconds: a guard against hanging.
const startLimit = time.Minute

// program returns the path of prometheus or promtool.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv(programVariable), name)
	if os.Getenv(programVariable) == "" {
		path = name
	}
	path, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("%s is missing: apt-get install prometheus, or set %s to the directory of prometheus and promtool: %v", name, programVariable, err)
	}
	return path
}

// A server is a running Prometheus that scrapes a cluster and evaluates the scaled rules.
type server struct{ address string }

// monitor starts Prometheus for a cluster with workers at these addresses.
func monitor(t *testing.T, c *cluster.Cluster, workers []string) *server {
	t.Helper()
	dir := filepath.Join(c.Dir, "prometheus")
	clustertest.Must(t, os.MkdirAll(dir, 0o755))
	clustertest.Must(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(scaled(t)), 0o644))
	var coordinators []string
	for _, n := range c.Coordinators() {
		coordinators = append(coordinators, n.HTTP)
	}
	config, err := json.MarshalIndent(map[string]any{ // JSON is YAML
		"global":     map[string]any{"scrape_interval": "500ms", "evaluation_interval": "500ms", "scrape_timeout": "500ms"},
		"rule_files": []string{"rules.yml"},
		"scrape_configs": []any{
			job("dtaskd", coordinators), job("dtask-worker", workers),
		},
	}, "", " ")
	clustertest.Must(t, err)
	clustertest.Must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), config, 0o644))
	address, err := cluster.FreePort(t.Context())
	clustertest.Must(t, err)
	process := cluster.NewProcess("prometheus", c.Dir, program(t, "prometheus"), []string{
		"--config.file=" + filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--storage.tsdb.retention.time=2h", "--web.listen-address=" + address, "--log.level=warn",
		"--query.lookback-delta=" + (5 * time.Minute / scale).String(),
	}, nil)
	clustertest.Must(t, process.Start(t.Context()))
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
	s := &server{address}
	targets := float64(len(coordinators) + len(workers))
	clustertest.Must(t, cluster.Until(t.Context(), "Prometheus scrapes all", startLimit, func(ctx context.Context) error {
		up, err := s.query(ctx, "sum(up)")
		if err != nil || len(up) != 1 || up[0].number() != targets {
			return fmt.Errorf("%v up, want %v: %w", up, targets, err)
		}
		return nil
	}))
	return s
}

func job(name string, targets []string) map[string]any {
	return map[string]any{"job_name": name, "static_configs": []any{
		map[string]any{"targets": targets, "labels": map[string]string{"cluster": "dtask"}},
	}}
}

// A series is one result of a query.
type series struct {
	Metric map[string]string
	Value  [2]any // time, and the number as text
}

func (s series) number() (value float64) {
	text, _ := s.Value[1].(string)
	_, _ = fmt.Sscan(text, &value) // 0 is a wrong number, too
	return value
}

// query evaluates an expression now.
func (s *server) query(ctx context.Context, expr string) ([]series, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/api/v1/query?query="+url.QueryEscape(expr), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s %s: %w", expr, answer.Status, answer.Error, err)
	}
	return answer.Data.Result, nil
}

// fired returns the names of all alerts that have fired since Prometheus started, sorted.
func (s *server) fired(ctx context.Context) ([]string, error) {
	list, err := s.query(ctx, `max by (alertname) (max_over_time(ALERTS{alertstate="firing"}[2h]))`)
	var names []string
	for _, one := range list {
		names = append(names, one.Metric["alertname"])
	}
	slices.Sort(names)
	return names, err
}

func TestPrometheusAcceptsTheConfiguration(t *testing.T) {
	t.Parallel()
	needsSuite(t)
	check := exec.CommandContext(t.Context(), program(t, "promtool"), "check", "config", "--lint-fatal", filepath.Join(filepath.Dir(filepath.Join(root(t), rulesFile)), "prometheus.yml"))
	out, err := check.CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("SUCCESS: %d rules found", len(rules(t)))) {
		t.Errorf("%v\n%s", err, out)
	}
}
