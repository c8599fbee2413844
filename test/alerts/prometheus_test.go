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
	rules := filepath.Join(c.Dir, "rules.yml")
	clustertest.Must(t, os.WriteFile(rules, []byte(scaled(t)), 0o644))
	var coordinators []string
	for _, n := range c.Coordinators() {
		coordinators = append(coordinators, n.HTTP)
	}
	s := start(t, c, map[string]any{
		"rule_files":     []string{rules},
		"scrape_configs": []any{job("dtaskd", coordinators), job("dtask-worker", workers)},
	})
	s.await(t, "sum(up)", float64(len(coordinators)+len(workers)))
	return s
}

// start starts Prometheus with a configuration, to which it adds the intervals.
func start(t *testing.T, c *cluster.Cluster, configuration map[string]any) *server {
	t.Helper()
	dir := filepath.Join(c.Dir, "prometheus")
	clustertest.Must(t, os.MkdirAll(dir, 0o755))
	configuration["global"] = map[string]any{"scrape_interval": "500ms", "evaluation_interval": "500ms", "scrape_timeout": "500ms"}
	text, err := json.MarshalIndent(configuration, "", " ") // JSON is YAML
	clustertest.Must(t, err)
	clustertest.Must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), text, 0o644))
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
	return &server{address}
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

// get asks the API of Prometheus.
func (s *server) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %s %s: %w", path, answer.Status, answer.Error, err)
	}
	return json.Unmarshal(answer.Data, data)
}

// query evaluates an expression now.
func (s *server) query(ctx context.Context, expr string) ([]series, error) {
	var data struct{ Result []series }
	err := s.get(ctx, "query?query="+url.QueryEscape(expr), &data)
	return data.Result, err
}

// await waits until an expression has one value.
func (s *server) await(t *testing.T, expr string, value float64) {
	t.Helper()
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("%s is %v", expr, value), startLimit, func(ctx context.Context) error {
		got, err := s.query(ctx, expr)
		if err != nil || len(got) != 1 || got[0].number() != value {
			return fmt.Errorf("got %v: %w", got, errors.Join(cluster.ErrNotYet, err))
		}
		return nil
	}))
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
