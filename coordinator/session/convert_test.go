package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOnlyTheCoordinatorMakesTheLabelsOfTypesAndSecrets(t *testing.T) {
	t.Parallel()
	hello := helloOf(t.Context(), &dtaskv1.Hello{
		Labels:  map[string]string{"zone": "eu", fsm.TypeLabel: "forged", fsm.SecretLabel: "forged"},
		Secrets: []string{"key", "db", "db"}, Types: []string{"command"},
	})
	want := []fsm.Label{{Key: "zone", Value: "eu"}, {Key: fsm.SecretLabel, Value: "db"}, {Key: fsm.SecretLabel, Value: "key"}, {Key: fsm.TypeLabel, Value: "command"}}
	if diff := cmp.Diff(want, hello.Labels); diff != "" {
		t.Error(diff)
	}
}
