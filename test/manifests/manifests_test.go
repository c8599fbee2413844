package manifests

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// variants are the directories that are applied.
var variants = []string{"base", "overlays/small"}

// manifests are the objects of one variant.
type manifests struct {
	service     *corev1.Service
	budget      *policyv1.PodDisruptionBudget
	coordinator *appsv1.StatefulSet
	worker      *appsv1.Deployment
}

// kustomized are the objects of a variant, as kubectl apply -k makes them.
func kustomized(t *testing.T, variant string) []*resource.Resource {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "deploy", "kubernetes", variant))
	if err != nil {
		t.Fatal(err)
	}
	return all.Resources()
}

// build builds a variant. An unknown or misspelled field of an object is an error.
func build(t *testing.T, variant string) manifests {
	t.Helper()
	m := manifests{new(corev1.Service), new(policyv1.PodDisruptionBudget), new(appsv1.StatefulSet), new(appsv1.Deployment)}
	into := map[string]any{
		"v1 Service": m.service, "policy/v1 PodDisruptionBudget": m.budget, "apps/v1 StatefulSet": m.coordinator, "apps/v1 Deployment": m.worker,
	}
	for _, r := range kustomized(t, variant) {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		id := r.GetApiVersion() + " " + r.GetKind()
		object, ok := into[id]
		if !ok {
			t.Fatalf("unexpected or second %s %s", id, r.GetName())
		}
		delete(into, id)
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Fatalf("%s %s: %v", id, r.GetName(), err)
		}
		if r.GetNamespace() != "dtask" {
			t.Errorf("%s %s: namespace %q", id, r.GetName(), r.GetNamespace())
		}
	}
	for id := range into {
		t.Fatalf("%s is missing", id)
	}
	return m
}

// each runs a test of every variant.
func each(t *testing.T, test func(t *testing.T, m manifests)) {
	t.Helper()
	for _, variant := range variants {
		t.Run(strings.ReplaceAll(variant, "/", "-"), func(t *testing.T) {
			t.Parallel()
			test(t, build(t, variant))
		})
	}
}

func (m manifests) templates() map[string]corev1.PodTemplateSpec {
	return map[string]corev1.PodTemplateSpec{"coordinator": m.coordinator.Spec.Template, "worker": m.worker.Spec.Template}
}

func TestSelectorsSelectTheirPodsOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		coordinators, workers := labels.Set(m.coordinator.Spec.Template.Labels), labels.Set(m.worker.Spec.Template.Labels)
		for name, s := range map[string]*metav1.LabelSelector{
			"StatefulSet": m.coordinator.Spec.Selector, "PodDisruptionBudget": m.budget.Spec.Selector,
			"Service": {MatchLabels: m.service.Spec.Selector}, "anti-affinity": antiAffinity(t, m.coordinator),
		} {
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil || selector.Empty() || !selector.Matches(coordinators) || selector.Matches(workers) {
				t.Errorf("%s: %v, %v: must select coordinators only", name, selector, err)
			}
		}
		selector, err := metav1.LabelSelectorAsSelector(m.worker.Spec.Selector)
		if err != nil || !selector.Matches(workers) || selector.Matches(coordinators) {
			t.Errorf("Deployment: %v, %v: must select workers only", selector, err)
		}
	})
}

// antiAffinity returns the selector of pods that a coordinator avoids on its node.
func antiAffinity(t *testing.T, s *appsv1.StatefulSet) *metav1.LabelSelector {
	t.Helper()
	rule := s.Spec.Template.Spec.Affinity.PodAntiAffinity
	terms := rule.RequiredDuringSchedulingIgnoredDuringExecution
	for _, p := range rule.PreferredDuringSchedulingIgnoredDuringExecution {
		terms = append(terms, p.PodAffinityTerm)
	}
	if len(terms) != 1 || terms[0].TopologyKey != corev1.LabelHostname {
		t.Fatalf("anti-affinity %+v", terms)
	}
	return terms[0].LabelSelector
}

func TestCoordinatorsFormAClusterAndKeepItsMajority(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		set := m.coordinator.Spec
		if set.PodManagementPolicy != appsv1.ParallelPodManagement || *set.Replicas != 3 {
			t.Errorf("policy %s, %d replicas", set.PodManagementPolicy, *set.Replicas)
		}
		if m.service.Spec.ClusterIP != corev1.ClusterIPNone || !m.service.Spec.PublishNotReadyAddresses || set.ServiceName != m.service.Name {
			t.Errorf("the service %q is %+v: coordinators find each other by it before they are ready", set.ServiceName, m.service.Spec)
		}
		if b := m.budget.Spec; b.MaxUnavailable == nil || *b.MaxUnavailable != intstr.FromInt32(1) || b.MinAvailable != nil {
			t.Errorf("budget %+v: two of three coordinators must stay", b)
		}
		container := set.Template.Spec.Containers[0]
		var peers []string
		for i := range int(*set.Replicas) {
			name := m.coordinator.Name + "-" + strconv.Itoa(i)
			peers = append(peers, name+"="+name+"."+set.ServiceName+".$(POD_NAMESPACE).svc:7460")
		}
		want := map[string]string{
			"--id": "$(POD_NAME)", "--advertise": "$(POD_NAME)." + set.ServiceName + ".$(POD_NAMESPACE).svc:7460",
			"--peers": strings.Join(peers, ","), "--auto-rejoin": "", "--tls-dir": "/etc/dtask/tls/$(POD_NAME)",
		}
		got := flags(container.Args)
		for name, value := range want {
			if v, ok := got[name]; !ok || v != value {
				t.Errorf("%s=%s, want %s", name, v, value)
			}
		}
	})
}

func TestProbesRestartOnlyAProcessThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		spec := m.coordinator.Spec.Template.Spec
		c := spec.Containers[0]
		if c.Lifecycle != nil || *spec.TerminationGracePeriodSeconds != 30 {
			t.Errorf("lifecycle %v, grace %d: SIGTERM is enough", c.Lifecycle, *spec.TerminationGracePeriodSeconds)
		}
		for name, p := range map[string]*corev1.Probe{"liveness": c.LivenessProbe, "startup": c.StartupProbe, "readiness": c.ReadinessProbe} {
			path := "/healthz"
			if name == "readiness" {
				path = "/readyz"
			}
			get := p.HTTPGet
			if get == nil || get.Path != path || get.Scheme != corev1.URISchemeHTTPS || port(c, get.Port) != 7461 {
				t.Errorf("%s probe %+v: must ask %s only", name, p, path)
			}
		}
		if d := time.Duration(c.StartupProbe.PeriodSeconds*c.StartupProbe.FailureThreshold) * time.Second; d < 10*time.Minute {
			t.Errorf("a coordinator that reads its log is restarted after %v", d)
		}
		worker := m.worker.Spec.Template.Spec
		drain, err := time.ParseDuration(flags(worker.Containers[0].Args)["--drain-timeout"])
		if grace := time.Duration(*worker.TerminationGracePeriodSeconds) * time.Second; err != nil || grace < drain+15*time.Second {
			t.Errorf("workers are killed after %v, and drain for %v, %v", grace, drain, err)
		}
	})
}

// port returns the number of a container's port.
func port(c corev1.Container, name intstr.IntOrString) int32 {
	for _, p := range c.Ports {
		if p.Name == name.StrVal {
			return p.ContainerPort
		}
	}
	return name.IntVal
}

func TestTheServiceHasThePortsOfTheContainer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		c := m.coordinator.Spec.Template.Spec.Containers[0]
		args := flags(c.Args)
		for name, flag := range map[string]string{"grpc": "--listen", "https-metrics": "--http"} {
			i := slices.IndexFunc(m.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name })
			if i < 0 {
				t.Errorf("the service lacks the port %s", name)
				continue
			}
			p := m.service.Spec.Ports[i]
			if number := port(c, p.TargetPort); number != p.Port || args[flag] != fmt.Sprintf(":%d", number) {
				t.Errorf("%s: the service has %d, the container %d, and %s %s", name, p.Port, number, flag, args[flag])
			}
		}
	})
}

func TestVolumesAreDefinedAndUsed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		for name, template := range m.templates() {
			defined := map[string]bool{}
			for _, v := range template.Spec.Volumes {
				defined[v.Name] = true
				if s := v.Secret; s != nil && (s.DefaultMode == nil || *s.DefaultMode != 0o440) {
					t.Errorf("%s: the secret %s must be readable by the group only", name, s.SecretName)
				}
			}
			if name == "coordinator" {
				for _, claim := range m.coordinator.Spec.VolumeClaimTemplates {
					defined[claim.Name] = true
				}
			}
			mounted := map[string]bool{}
			for _, mount := range template.Spec.Containers[0].VolumeMounts {
				mounted[mount.Name] = true
			}
			if !maps.Equal(defined, mounted) {
				t.Errorf("%s: the volumes %v are defined, and %v are mounted", name, defined, mounted)
			}
		}
		var files []string
		for _, v := range m.coordinator.Spec.Template.Spec.Volumes {
			if v.Name == "tls" {
				for _, item := range v.Secret.Items {
					files = append(files, item.Path)
				}
			}
		}
		for i := range int(*m.coordinator.Spec.Replicas) {
			for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
				if path := fmt.Sprintf("%s-%d/%s", m.coordinator.Name, i, file); !slices.Contains(files, path) {
					t.Errorf("the volume tls lacks %s", path)
				}
			}
		}
	})
}

func TestPodsHaveNoPrivileges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, m manifests) {
		for name, template := range m.templates() {
			pod, c := template.Spec.SecurityContext, template.Spec.Containers[0].SecurityContext
			if !*pod.RunAsNonRoot || *pod.RunAsUser != 65532 || *pod.FSGroup != 65532 || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: %+v", name, pod)
			}
			if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s: %+v", name, c)
			}
			if *template.Spec.AutomountServiceAccountToken {
				t.Errorf("%s has a token of the Kubernetes API", name)
			}
		}
	})
}

// flags returns the values of arguments by flag.
func flags(args []string) map[string]string {
	set := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		set[name] = value
	}
	return set
}

// reference matches a variable in arguments.
var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func TestArgumentsAreThoseOfThePrograms(t *testing.T) {
	t.Parallel()
	m := build(t, "base")
	for name, template := range m.templates() {
		c := template.Spec.Containers[0]
		program := strings.TrimPrefix(c.Command[0], "/")
		help := exec.CommandContext(t.Context(), "go", "run", "./cmd/"+program, "--help")
		help.Dir = root
		text, err := help.Output()
		if err != nil {
			t.Fatal(err)
		}
		for flag := range flags(c.Args) {
			if !regexp.MustCompile(`(?m)^ +` + flag + `\b`).Match(text) {
				t.Errorf("%s: %s has no flag %s", name, program, flag)
			}
		}
		var defined []string
		for _, e := range c.Env {
			defined = append(defined, e.Name)
		}
		for _, v := range reference.FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
			if !slices.Contains(defined, v[1]) {
				t.Errorf("%s: %s is not defined", name, v[0])
			}
		}
	}
}
