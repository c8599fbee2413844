package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"
)

// workerSlots is what the examples divide the slots that tasks want by.
const workerSlots = "4"

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// autoscaling decodes an example strictly.
func autoscaling(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(readFile(t, "deploy", "kubernetes", "autoscaling", name), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// isListed fails the test unless docs/metrics.md lists the metrics in an expression.
func isListed(t *testing.T, expression string) {
	t.Helper()
	names := regexp.MustCompile(`\bdtask_\w+`).FindAllString(expression, -1)
	if len(names) == 0 {
		t.Errorf("no metric in %s", expression)
	}
	for _, name := range names {
		if !strings.Contains(string(readFile(t, "docs", "metrics.md")), "\n| `"+name+"` | gauge |") {
			t.Errorf("docs/metrics.md does not list the gauge %s", name)
		}
	}
}

func TestTheAutoscalerScalesTheWorkers(t *testing.T) {
	t.Parallel()
	var h autoscalingv2.HorizontalPodAutoscaler
	autoscaling(t, "hpa.yaml", &h)
	worker := build(t, "base").worker
	target := h.Spec.ScaleTargetRef
	if h.APIVersion != "autoscaling/v2" || h.Kind != "HorizontalPodAutoscaler" || h.Namespace != worker.Namespace {
		t.Errorf("%s %s in %s", h.APIVersion, h.Kind, h.Namespace)
	}
	if target.APIVersion != "apps/v1" || target.Kind != "Deployment" || target.Name != worker.Name {
		t.Errorf("the target is %+v", target)
	}
	if *h.Spec.MinReplicas < 1 || h.Spec.MaxReplicas <= *h.Spec.MinReplicas || len(h.Spec.Metrics) != 1 {
		t.Errorf("%d to %d replicas by %d metrics", *h.Spec.MinReplicas, h.Spec.MaxReplicas, len(h.Spec.Metrics))
	}
	m := h.Spec.Metrics[0]
	if m.Type != autoscalingv2.ExternalMetricSourceType || m.External.Target.Type != autoscalingv2.AverageValueMetricType ||
		m.External.Target.AverageValue.String() != workerSlots {
		t.Errorf("the metric is %+v", m.External)
	}
	isListed(t, m.External.Metric.Name)
	var adapter struct {
		Rules struct {
			Default  bool `json:"default"`
			External []struct {
				SeriesQuery  string         `json:"seriesQuery"`
				Resources    map[string]any `json:"resources"`
				Name         map[string]any `json:"name"`
				MetricsQuery string         `json:"metricsQuery"`
			} `json:"external"`
		} `json:"rules"`
	}
	autoscaling(t, "prometheus-adapter.yaml", &adapter)
	if rules := adapter.Rules.External; len(rules) != 1 || !strings.Contains(rules[0].SeriesQuery, m.External.Metric.Name) || !strings.HasPrefix(rules[0].MetricsQuery, "max(") {
		t.Errorf("the adapter has the rules %+v", rules)
	}
	isListed(t, adapter.Rules.External[0].SeriesQuery)
}

// The types of KEDA are not at hand: the fields are those of its documentation.
func TestTheScaledObjectScalesTheWorkers(t *testing.T) {
	t.Parallel()
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			ScaleTargetRef struct {
				Name string `json:"name"`
			} `json:"scaleTargetRef"`
			PollingInterval int `json:"pollingInterval"`
			CooldownPeriod  int `json:"cooldownPeriod"`
			MinReplicaCount int `json:"minReplicaCount"`
			MaxReplicaCount int `json:"maxReplicaCount"`
			Fallback        struct {
				FailureThreshold int `json:"failureThreshold"`
				Replicas         int `json:"replicas"`
			} `json:"fallback"`
			Triggers []struct {
				Type       string            `json:"type"`
				MetricType string            `json:"metricType"`
				Metadata   map[string]string `json:"metadata"`
			} `json:"triggers"`
		} `json:"spec"`
	}
	autoscaling(t, "keda.yaml", &o)
	worker := build(t, "base").worker
	if o.APIVersion != "keda.sh/v1alpha1" || o.Kind != "ScaledObject" || o.Metadata.Namespace != worker.Namespace || o.Spec.ScaleTargetRef.Name != worker.Name {
		t.Errorf("%+v", o)
	}
	if s := o.Spec; s.MinReplicaCount != 0 || s.Fallback.Replicas < 1 || s.Fallback.Replicas > s.MaxReplicaCount || s.CooldownPeriod <= s.PollingInterval || len(s.Triggers) != 2 {
		t.Errorf("%+v", s)
	}
	for i, trigger := range o.Spec.Triggers {
		if trigger.Type != "prometheus" || !strings.HasPrefix(trigger.Metadata["query"], "max(") || trigger.Metadata["ignoreNullValues"] != "false" ||
			!strings.HasPrefix(trigger.Metadata["serverAddress"], "http") {
			t.Errorf("trigger %d is %+v", i, trigger)
		}
		isListed(t, trigger.Metadata["query"])
	}
	if first := o.Spec.Triggers[0]; first.MetricType != "AverageValue" || first.Metadata["threshold"] != workerSlots {
		t.Errorf("the first trigger is %+v", first)
	}
}
