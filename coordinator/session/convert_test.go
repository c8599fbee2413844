package session

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOnlyTheCoordinatorMakesTheLabelsOfTypesSecretsAndNamespaces(t *testing.T) {
	t.Parallel()
	hello := helloOf(t.Context(), &dtaskv1.Hello{
		Labels:  map[string]string{"zone": "eu", fsm.TypeLabel: "forged", fsm.SecretLabel: "forged", fsm.NamespaceLabel: "forged"},
		Secrets: []string{"key", "db", "db"}, Types: []string{"command"},
	}, &ungranted)
	want := []fsm.Label{{Key: fsm.SecretLabel, Value: "db"}, {Key: fsm.SecretLabel, Value: "key"}, {Key: fsm.TypeLabel, Value: "command"}, {Key: "zone", Value: "eu"}}
	if diff := cmp.Diff(want, hello.Labels); diff != "" {
		t.Error(diff)
	}
}

// Tasks select a worker by what it was granted, not by what it announces.
func TestAGrantDecidesTheLabelsAndNamespacesOfAWorker(t *testing.T) {
	t.Parallel()
	hello := &dtaskv1.Hello{Labels: map[string]string{"zone": "eu"}, Types: []string{"command"}}
	g := &Grant{Labels: map[string]string{"zone": "eu", "rack": "7", fsm.TypeLabel: "forged"}, Namespaces: []string{"ml", "default", "ml"}}
	want := []fsm.Label{
		{Key: fsm.NamespaceLabel, Value: "default"},
		{Key: fsm.NamespaceLabel, Value: "ml"},
		{Key: fsm.TypeLabel, Value: "command"},
		{Key: "rack", Value: "7"},
		{Key: "zone", Value: "eu"},
	}
	if diff := cmp.Diff(want, helloOf(t.Context(), hello, g).Labels); diff != "" {
		t.Error(diff)
	}
}

// An assignment has the resources that the attempt takes, and the state keeps all alternatives.
func TestAnAssignmentHasTheResourcesThatItTakes(t *testing.T) {
	t.Parallel()
	stored := &dtaskv1.TaskPolicy{
		Type: "x", Resources: map[string]int64{"gpu": 1000},
		Alternatives: []*dtaskv1.ResourceList{{Resources: map[string]int64{"gpu": 500, "cpu": 1000}}, {Resources: map[string]int64{"cpu": 8000}}},
	}
	before := proto.Clone(stored)
	for alternative, want := range []map[string]int64{{"gpu": 1000}, {"gpu": 500, "cpu": 1000}, {"cpu": 8000}} {
		got := taking(stored, uint8(alternative)) //nolint:gosec // small
		if !maps.Equal(got.GetResources(), want) || len(got.GetAlternatives()) != 0 || got.GetType() != "x" {
			t.Errorf("alternative %d: got %v, want the resources %v", alternative, got, want)
		}
	}
	if !proto.Equal(stored, before) {
		t.Errorf("the policy in the state became %v", stored)
	}
	if plain := (&dtaskv1.TaskPolicy{Resources: map[string]int64{"cpu": 1}}); taking(plain, 0) != plain {
		t.Error("a policy without alternatives was copied")
	}
}
