package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// compose loads the compose file as docker compose does. A field that the specification
// lacks, or a volume that is not defined, is an error.
func compose(t *testing.T) *types.Project {
	t.Helper()
	file := filepath.Join(root, "deploy", "docker", "compose.yaml")
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("dtask"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestTheComposeFileStartsASecuredCluster(t *testing.T) {
	t.Parallel()
	project := compose(t)
	var names []string
	for name, s := range project.Services {
		names = append(names, name)
		if name == "prometheus" {
			continue
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Hostname != name {
			t.Errorf("%s: %+v", name, s)
		}
		if len(s.Volumes) != 1 || s.Volumes[0].Source != name || s.Volumes[0].Target != "/var/lib/dtask" {
			t.Errorf("%s: volumes %+v", name, s.Volumes)
		}
		if len(s.Ports) > 0 {
			t.Errorf("%s: %+v is open to other machines", name, s.Ports)
		}
		limit, stop := 30*time.Second, time.Duration(*s.StopGracePeriod)
		if strings.HasPrefix(name, "w") {
			drain, err := time.ParseDuration(s.Command[slices.Index(s.Command, "--drain-timeout")+1])
			if err != nil {
				t.Error(err)
			}
			limit = drain + 15*time.Second
		} else if !slices.Contains(s.Command, "--auto-rejoin") {
			t.Errorf("%s: %v", name, s.Command)
		}
		if stop < limit {
			t.Errorf("%s is killed after %v, want %v", name, stop, limit)
		}
	}
	slices.Sort(names)
	if want := []string{"n1", "n2", "n3", "prometheus", "w1", "w2"}; !slices.Equal(names, want) {
		t.Errorf("services %v, want %v", names, want)
	}
}

func TestPrometheusScrapesTheCoordinatorsOfTheComposeFile(t *testing.T) {
	t.Parallel()
	project := compose(t)
	var config struct {
		ScrapeConfigs []struct {
			Scheme        string `json:"scheme"`
			StaticConfigs []struct {
				Targets []string          `json:"targets"`
				Labels  map[string]string `json:"labels"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "docker", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var want []string
	for name := range project.Services {
		if strings.HasPrefix(name, "n") {
			want = append(want, name+":7461")
		}
	}
	slices.Sort(want)
	if got := config.ScrapeConfigs[0]; got.Scheme != "https" || !slices.Equal(got.StaticConfigs[0].Targets, want) || got.StaticConfigs[0].Labels["cluster"] == "" {
		t.Errorf("got %+v, want https to %v", got, want)
	}
}
