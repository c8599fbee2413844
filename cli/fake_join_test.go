package cli

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Join gives access by the join strings of addJoinStrings.
func (f *fakeLeader) Join(_ context.Context, r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.joins = append(f.joins, r)
	hash := sha256.Sum256(r.GetJoinSecret())
	i := slices.IndexFunc(f.strings, func(j *fakeJoinString) bool { return j.GetId() == r.GetJoinToken() && slices.Equal(j.hash, hash[:]) })
	refuse := func(why string) (*dtaskv1.JoinResponse, error) {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "the join string "+why+": dtaskctl join-token create user makes another one")
	}
	if i < 0 {
		return refuse("is unknown to this cluster, or was removed long after its end")
	}
	j := f.strings[i]
	if made := f.joined[r.GetKey()]; made != nil {
		return f.joinResponse(made), nil
	}
	switch {
	case j.GetState() != "active":
		return refuse("has the state " + j.GetState())
	case r.GetName() == "taken":
		return nil, refusal(codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "identity 1 has the name taken")
	}
	made, err := f.addLocked(&dtaskv1.Identity{Name: r.GetName(), Role: j.GetRole(), Namespaces: j.GetNamespaces(), ExpiresAt: expiry(time.Hour.Milliseconds())})
	if err != nil {
		return nil, err
	}
	j.Used, f.joined[r.GetKey()] = j.GetUsed()+1, made
	if j.GetUsed() == j.GetUses() {
		j.State = "used up"
	}
	return f.joinResponse(made), nil
}

func (f *fakeLeader) joinResponse(i *dtaskv1.Identity) *dtaskv1.JoinResponse {
	return &dtaskv1.JoinResponse{Identity: i, ClusterId: fakeCluster, Addresses: []string{f.addr}, Roots: [][]byte{f.ca.Cert.Raw}}
}

// newSecuredLeader returns a leader that has a CA, and serves it over TLS until done is
// called, with a certificate that was issued at a time. Calls but Join need a token.
func newSecuredLeader(dir, cluster string, at time.Time) (f *fakeLeader, done func(), err error) {
	f = newFakeLeader()
	if f.ca, err = tlsconf.NewCA(cluster, at); err != nil {
		return nil, nil, err
	}
	key := tlsconf.KeyHash(f.ca.Cert)
	f.caKey = key[:]
	cfg, err := replicaTLS(f.ca, dir, at)
	if err != nil {
		return nil, nil, err
	}
	opts := append(announcing(cluster), grpc.Creds(credentials.NewTLS(cfg)), grpc.ChainUnaryInterceptor(needToken))
	s := grpc.NewServer(opts...)
	dtaskv1.RegisterJobServiceServer(s, f)
	dtaskv1.RegisterClusterServiceServer(s, f)
	dtaskv1.RegisterAdminServiceServer(s, f)
	dtaskv1.RegisterAuthServiceServer(s, f)
	f.addr, done, err = listenAndServe(s)
	return f, done, err
}

// replicaTLS returns the configuration of a replica's port, whose files are in a
// directory.
func replicaTLS(ca *tlsconf.CA, dir string, at time.Time) (*tls.Config, error) {
	key, err := tlsconf.NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public()}, at)
	if err != nil {
		return nil, err
	}
	if err := tlsconf.Save(dir, cert, key, ca.Cert); err != nil {
		return nil, err
	}
	replica, err := tlsconf.LoadReplica(dir)
	if err != nil {
		return nil, err
	}
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: peering.GetConfigForClient}, nil
}

// needToken refuses calls without a token.
func needToken(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if info.FullMethod == dtaskv1.AuthService_Join_FullMethodName {
		return handle(ctx, req)
	}
	header := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(header) == 0 {
		return nil, refusal(codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "the call needs credentials")
	}
	if _, err := auth.ParseHeader(header[0]); err != nil {
		return nil, refusal(codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, err.Error())
	}
	return handle(ctx, req)
}

// writeJoinStrings makes join strings in several states and writes each to a file in a
// directory: ok, expired, used-up, revoked, worker (for that purpose), cut, mistyped and named (with a name of the cluster).
func (f *fakeLeader) writeJoinStrings(dir, cluster string, ca *tlsconf.CA) error {
	for _, name := range []string{"ok", "two", "expired", "used up", "revoked", "worker", "cut", "mistyped", "named"} {
		j := &auth.JoinString{
			ClusterID: cluster, CAKey: tlsconf.KeyHash(ca.Cert), ID: uint64(len(f.strings) + 1), Secret: auth.NewJoinSecret(),
			Purpose: auth.JoinUser, Addresses: []string{f.addr},
		}
		state, hash := "active", j.Hash()
		switch name {
		case "worker":
			j.Purpose = auth.JoinWorker
		case "named":
			j.ClusterName = "eu-prod"
		case "expired", "used up", "revoked":
			state = name
		}
		f.strings = append(f.strings, &fakeJoinString{hash: hash[:], JoinToken: &dtaskv1.JoinToken{Id: j.ID, Role: "submitter", Namespaces: []string{"etl"}, Uses: 1, State: state}})
		secret, err := j.Text()
		if err != nil {
			return err
		}
		text := secret.Reveal()
		switch name {
		case "cut":
			text = text[:len(text)-5]
		case "mistyped":
			letter := "a"
			if text[40] == 'a' {
				letter = "b"
			}
			text = text[:40] + letter + text[41:]
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".join"), []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}
