package api

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// identities are the callers of tests, by the name that a call has in its metadata. An
// anonymous one has no name there.
var identities = map[string]*auth.Principal{
	"reader":    {ID: 1, Name: "reader", Role: auth.Reader, Namespaces: []string{"etl"}, Via: auth.ViaToken},
	"submitter": {ID: 2, Name: "ci", Role: auth.Submitter, Namespaces: []string{"etl"}, Via: auth.ViaToken},
	"operator":  {ID: 3, Name: "operator", Role: auth.Operator, Via: auth.ViaToken},
	"admin":     {ID: 4, Name: "root", Role: auth.Admin, Via: auth.ViaToken},
	"metrics":   {ID: 5, Name: "prometheus", Role: auth.Scraper, Via: auth.ViaToken},
	"worker":    {ID: 6, Name: "w1", Role: auth.Worker, Namespaces: []string{"etl"}, Via: auth.ViaKey},
	"replica":   {Name: "n2", Role: auth.Replica, Via: auth.ViaPeer},

	"both":    {ID: 7, Name: "both", Role: auth.Submitter, Namespaces: []string{"etl", "ml"}, Via: auth.ViaToken},
	"default": {ID: 8, Name: "default", Role: auth.Submitter, Namespaces: []string{"default", "etl"}, Via: auth.ViaToken},
	"ml":      {ID: 9, Name: "ci", Role: auth.Submitter, Namespaces: []string{"ml"}, Via: auth.ViaToken},
	"all":     {ID: 10, Name: "all", Role: auth.Submitter, Namespaces: []string{auth.AllNamespaces}, Via: auth.ViaToken},
	"none":    {ID: 11, Name: "none", Role: auth.Submitter, Via: auth.ViaToken},
	"socket":  {Role: auth.Admin, Via: auth.ViaSocket},
}

const callerKey = "test-caller"

// as returns a context of calls by an identity.
func as(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, callerKey, name)
}

// withIdentities lets a server authenticate callers by the name in their metadata.
func withIdentities(cfg *Config) {
	cfg.Authenticate = func(ctx context.Context, _ string) (context.Context, *auth.Principal, error) {
		for _, name := range metadata.ValueFromIncomingContext(ctx, callerKey) {
			if p, ok := identities[name]; ok {
				return ctx, p, nil
			}
		}
		return ctx, nil, nil
	}
}

// setupIdentities is setup for a cluster with identities and namespaces. The server has
// the services of other packages, without their implementation.
func setupIdentities(t *testing.T, change ...func(*Config)) *replica {
	t.Helper()
	r := build(t, append([]func(*Config){withIdentities}, change...)...)
	dtaskv1.RegisterClusterServiceServer(r.Server, dtaskv1.UnimplementedClusterServiceServer{})
	dtaskv1.RegisterWorkerServiceServer(r.Server, dtaskv1.UnimplementedWorkerServiceServer{})
	dtaskv1.RegisterAuthServiceServer(r.Server, dtaskv1.UnimplementedAuthServiceServer{})
	r.RegisterService(&unlisted, nil)
	r.serve(t)
	r.raise(t)
	return r
}

// unlisted is a service without a row in the table of rights.
var unlisted = grpc.ServiceDesc{
	ServiceName: "test.Unlisted",
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		panic("a method without a row was called")
	}}},
}

// raise raises the cluster to the level of namespaces.
func (r *replica) raise(t *testing.T) {
	t.Helper()
	r.leader.op(t, &fsm.SetLevel{Level: namespaceLevel})
}

// submitAs stores a job for an identity.
func (r *replica) submitAs(t *testing.T, name, key, namespace string, tasks ...*dtaskv1.TaskSpec) fsm.JobID {
	t.Helper()
	h := header(key)
	h.Namespace = namespace
	stored, err := r.send(as(t.Context(), name), request(key, h, tasks...))
	if err != nil {
		t.Fatalf("%s submits %s to %q: %v", name, key, namespace, err)
	}
	id, err := parseJobID(stored.GetId())
	if err != nil {
		t.Fatal(err)
	}
	return id
}
