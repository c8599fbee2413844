package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// services are all that a coordinator serves.
var services = []grpc.ServiceDesc{
	healthv1.Health_ServiceDesc, dtaskv1.JobService_ServiceDesc, dtaskv1.AdminService_ServiceDesc, dtaskv1.ClusterService_ServiceDesc,
	dtaskv1.WorkerService_ServiceDesc, dtaskv1.AuthService_ServiceDesc, dtaskv1.ScheduleService_ServiceDesc, dtaskv1.QueueService_ServiceDesc, dtaskv1.LimitService_ServiceDesc,
}

func TestEveryMethodHasARowAndEveryRowAMethod(t *testing.T) {
	t.Parallel()
	var methods []string
	for _, s := range services {
		for _, m := range s.Methods {
			methods = append(methods, "/"+s.ServiceName+"/"+m.MethodName)
		}
		for _, m := range s.Streams {
			methods = append(methods, "/"+s.ServiceName+"/"+m.StreamName)
		}
	}
	slices.Sort(methods)
	if got := Methods(); !slices.Equal(got, methods) {
		t.Errorf("rows:\n%s\nmethods:\n%s", strings.Join(got, "\n"), strings.Join(methods, "\n"))
	}
}

func TestAccessIsDeniedUnlessTheTableGrantsIt(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"", "/", "Submit", "/dtask.v1.JobService/Nothing", "dtask.v1.JobService/Submit"} {
		for r := Anonymous; r <= Replica+1; r++ {
			if Rights(r, method) != None {
				t.Errorf("%s may call %q", r, method)
			}
		}
	}
	for _, method := range Methods() {
		if Rights(Replica+1, method) != None {
			t.Errorf("an unknown role may call %s", method)
		}
	}
}

func TestOnlyAnAdminGivesAccess(t *testing.T) {
	t.Parallel()
	for _, method := range Methods() {
		if !strings.HasPrefix(method, "/dtask.v1.AuthService/") || method == dtaskv1.AuthService_Join_FullMethodName || method == dtaskv1.AuthService_WhoAmI_FullMethodName {
			continue
		}
		allowed := []Role{Admin}
		switch method {
		case dtaskv1.AuthService_TLSStatus_FullMethodName: // gives nothing
			allowed = []Role{Admin, Operator}
		case dtaskv1.AuthService_GetCAKey_FullMethodName: // to another coordinator
			allowed = []Role{Replica}
		case dtaskv1.AuthService_RotateKey_FullMethodName: // of the caller
			allowed = []Role{Worker}
		}
		for r := Anonymous; r <= Replica; r++ {
			if got := Rights(r, method) != None; got != slices.Contains(allowed, r) {
				t.Errorf("%s: %s may call it: %v", method, r, got)
			}
		}
	}
}

func TestWhoHasAllNamespacesHasAllRightsOfItsRole(t *testing.T) {
	t.Parallel()
	const method = dtaskv1.JobService_ListJobs_FullMethodName
	for _, test := range []struct {
		namespaces []string
		want       Right
	}{{[]string{"etl"}, Own}, {[]string{AllNamespaces}, Full}, {nil, Own}} {
		p := &Principal{Role: Reader, Namespaces: test.namespaces}
		if got, err := Authorize(p, method); got != test.want || err != nil {
			t.Errorf("%v: %v, %v, want %v", test.namespaces, got, err, test.want)
		}
	}
}

func TestADenialNamesTheCallerAndTheRolesThatMay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		p      *Principal
		method string
		want   string
	}{
		{&Principal{Name: "ci", Role: Reader, Namespaces: []string{"etl"}}, dtaskv1.JobService_Submit_FullMethodName, "reader ci (etl) may not call Submit, which needs the role admin, operator, submitter"},
		{nil, dtaskv1.JobService_Submit_FullMethodName, "Submit needs credentials: log in with dtaskctl login, or set --token-file"},
		{&Principal{Role: Admin}, "/x/Y", "/x/Y is not a method of this version"},
	} {
		_, err := Authorize(test.p, test.method)
		denied, ok := errors.AsType[*DeniedError](err)
		if !ok || denied.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

// Coordinators and workers of a cluster without identities call methods that no admin may.
func TestAClusterWithoutIdentitiesIsOpen(t *testing.T) {
	t.Parallel()
	ctx := NewContext(t.Context(), &Principal{Role: Admin, Via: ViaOpen})
	for _, method := range Methods() {
		if right := RightIn(ctx, method); right != Full {
			t.Errorf("%s: got right %d, want %d", method, right, Full)
		}
		if right := RightIn(t.Context(), method); right != Rights(Anonymous, method) {
			t.Errorf("%s: a context without a principal has right %d", method, right)
		}
	}
	if right := RightIn(ctx, "/x/Y"); right != None {
		t.Errorf("a method without a row: got right %d", right)
	}
}
