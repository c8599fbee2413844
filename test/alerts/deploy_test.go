package alerts

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	rulesFile     = "deploy/prometheus/dtask.rules.yml"
	dashboardFile = "deploy/grafana/dtask.json"
	runbooks      = "docs/operations.md"
)

// A rule is an alert, or a recorded expression.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

// rules reads the rules.
func rules(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	clustertest.Must(t, yaml.Unmarshal([]byte(read(t, filepath.Join(root(t), rulesFile))), &file))
	var all []rule
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return all
}

// alertNames are the names of all alerts, sorted.
func alertNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, r := range rules(t) {
		if r.Alert != "" {
			names = append(names, r.Alert)
		}
	}
	slices.Sort(names)
	return names
}

// A panel is one of the dashboard.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	clustertest.Must(t, json.Unmarshal([]byte(read(t, filepath.Join(root(t), dashboardFile))), &dashboard))
	if len(dashboard.Panels) == 0 {
		t.Fatalf("%s has no panels", dashboardFile)
	}
	return dashboard.Panels
}

var (
	listed   = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\|")
	named    = regexp.MustCompile(`\b(?:dtask_|process_|go_|cluster:)[\w:]+`)
	headings = regexp.MustCompile(`(?m)^### (Dtask\w+)$`)
)

// known returns a function that reports whether a name is that of a listed metric, of a
// series of a listed histogram, or of a recorded expression.
func known(t *testing.T) func(name string) bool {
	t.Helper()
	names := make(map[string]bool)
	for _, m := range listed.FindAllStringSubmatch(read(t, filepath.Join(root(t), metricsPage)), -1) {
		names[m[1]] = true
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[m[1]+suffix] = true
			}
		}
	}
	for _, r := range rules(t) {
		names[r.Record] = true
	}
	return func(name string) bool { return names[name] }
}

func TestRulesAndDashboardUseOnlyListedMetrics(t *testing.T) {
	t.Parallel()
	isKnown := known(t)
	check := func(where, expr string) {
		t.Helper()
		names := named.FindAllString(expr, -1)
		if len(names) == 0 && !strings.Contains(expr, "up{") {
			t.Errorf("%s uses no metric: %s", where, expr)
		}
		for _, name := range names {
			if !isKnown(name) {
				t.Errorf("%s uses %s, which %s does not list", where, name, metricsPage)
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert+r.Record, r.Expr)
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			check("panel "+p.Title, target.Expr)
			if !strings.Contains(target.Expr, `cluster="$cluster"`) {
				t.Errorf("panel %s mixes clusters: %s", p.Title, target.Expr)
			}
		}
	}
}

func TestEveryAlertHasASeverityATextAndARunbook(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, filepath.Join(root(t), runbooks)), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var described []string
	for _, m := range headings.FindAllStringSubmatch(section, -1) {
		described = append(described, m[1])
	}
	slices.Sort(described)
	if alerts := alertNames(t); !slices.Equal(described, alerts) {
		t.Errorf("%s describes %v,\nthe alerts are %v", runbooks, described, alerts)
	}
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has severity %q, want critical or warning", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || !strings.Contains(r.Annotations["description"], "$labels.cluster") {
			t.Errorf("%s needs a summary, and a description that names the cluster: %v", r.Alert, r.Annotations)
		}
		if want := runbooks + "#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], "/"+want) {
			t.Errorf("%s has the runbook %q, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
}
