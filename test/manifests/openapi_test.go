package manifests

import (
	"fmt"
	"strings"
	"testing"

	openapi "github.com/google/gnostic-models/openapiv2"
	protobuf "google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
	kubernetesapi "sigs.k8s.io/kustomize/kyaml/openapi/kubernetesapi/v1_21_2"
	"sigs.k8s.io/yaml"
)

// A description is the OpenAPI description of the Kubernetes API, by "version kind".
type description map[string]proto.Schema

// describe reads the description that kustomize has, of Kubernetes 1.21: that of kubectl's
// tests is older, and has no policy/v1. No server is asked.
func describe(t *testing.T) description {
	t.Helper()
	document := new(openapi.Document)
	if err := protobuf.Unmarshal(kubernetesapi.MustAsset("kubernetesapi/v1_21_2/swagger.pb"), document); err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		t.Fatal(err)
	}
	d := description{}
	for _, name := range models.ListModels() {
		model := models.LookupModel(name)
		kinds, _ := model.GetExtensions()["x-kubernetes-group-version-kind"].([]any)
		for _, kind := range kinds {
			names, _ := kind.(map[any]any)
			d[strings.TrimPrefix(fmt.Sprintf("%v/%v %v", names["group"], names["version"], names["kind"]), "/")] = model
		}
	}
	return d
}

// check returns what kubectl apply would say against an object. It asks the description for
// each field: an unknown one, a missing one and one of another type are errors.
func (d description) check(t *testing.T, text []byte) []error {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%v %v", object["apiVersion"], object["kind"])
	model, ok := d[id]
	if !ok {
		return []error{fmt.Errorf("the API has no %s", id)}
	}
	return validation.ValidateModel(object, model, fmt.Sprint(object["kind"]))
}

// objects are the objects of a variant, as text.
func objects(t *testing.T, variant string) (all [][]byte) {
	t.Helper()
	for _, r := range kustomized(t, variant) {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	return all
}

func TestObjectsFitTheDescriptionOfTheAPI(t *testing.T) {
	t.Parallel()
	d := describe(t)
	for _, variant := range variants {
		all := objects(t, variant)
		if len(all) == 0 {
			t.Errorf("%s has no objects", variant)
		}
		for _, text := range all {
			for _, err := range d.check(t, text) {
				t.Errorf("%s: %v\n%s", variant, err, text)
			}
		}
	}
}

func TestAWrongFieldDoesNotFitTheDescription(t *testing.T) {
	t.Parallel()
	d := describe(t)
	for _, c := range []struct{ field, wrong, says string }{
		{"terminationGracePeriodSeconds: ", "terminationGracePeriod: ", `unknown field "terminationGracePeriod"`},
		{"maxUnavailable: ", "maxUnavailble: ", `unknown field "maxUnavailble"`},
		{"podManagementPolicy: ", "podManagement: ", `unknown field "podManagement"`},
		{"publishNotReadyAddresses: true", "publishNotReadyAddresses: [1]", "invalid type"},
		{"serviceName: ", "serviceNam: ", `unknown field "serviceNam"`},
		{"apiVersion: policy/v1\n", "apiVersion: policy/v9\n", "no policy/v9 PodDisruptionBudget"},
	} {
		said := ""
		for _, text := range objects(t, "base") {
			if changed := strings.Replace(string(text), c.field, c.wrong, 1); changed != string(text) {
				for _, err := range d.check(t, []byte(changed)) {
					said += err.Error() + "\n"
				}
			}
		}
		if !strings.Contains(said, c.says) {
			t.Errorf("%q instead of %q: got %q, want %q", c.wrong, c.field, said, c.says)
		}
	}
}
