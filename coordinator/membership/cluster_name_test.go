package membership

import (
	"strings"
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheClusterHasTheNameThatAnAdminGivesIt(t *testing.T) {
	t.Parallel()
	r := setup(t)
	named := func(name string) (*dtaskv1.SetClusterNameResponse, error) {
		return r.Service.SetClusterName(t.Context(), &dtaskv1.SetClusterNameRequest{Name: name})
	}
	if _, err := named("eu:prod"); err == nil || !strings.Contains(err.Error(), `invalid name "eu:prod" of the cluster`) {
		t.Errorf("with a colon: got %v", err)
	}
	if _, err := named("eu-prod"); err == nil || !strings.Contains(err.Error(), "names of clusters need feature level 3: dtaskctl cluster upgrade status") {
		t.Errorf("below level 3: got %v", err)
	}
	r.op(t, &fsm.SetLevel{Level: 3})
	for _, test := range []struct {
		name    string
		already bool
	}{{"eu-prod", false}, {"eu-prod", true}, {"us", false}, {"", false}, {"", true}, {"eu", false}} {
		got, err := named(test.name)
		if err != nil || got.GetAlready() != test.already {
			t.Errorf("%q: got %v, %v", test.name, got, err)
		}
		if status, err := r.Status(t.Context(), &dtaskv1.StatusRequest{}); err != nil || status.GetName() != test.name {
			t.Errorf("%q: the status has %q, %v", test.name, status.GetName(), err)
		}
	}
}
