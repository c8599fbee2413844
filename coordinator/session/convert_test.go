package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
