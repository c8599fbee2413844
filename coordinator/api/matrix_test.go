package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	identity "github.com/dtask/dtask/coordinator/access"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The states of a credential. A replica's certificate is checked by the CA and by the
// membership, not by dates: that of a removed replica counts as revoked.
const (
	valid   = "valid"
	expired = "expired"
	revoked = "revoked"
)

// matrix is a server that authenticates its callers by a registry, on the state that has
// their identities.
type matrix struct {
	*replica

	ca       *tlsconf.CA
	registry *identity.Registry
	tokens   map[string]auth.Token        // by "identity state"
	certs    map[string]*x509.Certificate // likewise
	made     fsm.IdentityID               // number of the last identity
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	m := &matrix{tokens: make(map[string]auth.Token), certs: make(map[string]*x509.Certificate)}
	var err error
	if m.ca, err = tlsconf.NewCA(tlsconf.NewClusterID(), time.Now()); err != nil {
		t.Fatal(err)
	}
	own := m.replicaOf(t, "n1")
	m.replica = setupIdentities(t, func(cfg *Config) {
		cfg.LeaderWait = 0
		m.registry = identity.New(identity.Config{
			Machine: cfg.Machine, Replica: func() *tlsconf.Replica { return own }, TimeKnown: func() bool { return true }, Now: time.Now, Leads: func() bool { return true },
			Isolated: func() bool { return false }, Removed: func(id string) bool { return id == "n3" }, Logger: slog.New(slog.DiscardHandler),
		})
		cfg.Classify = func(err error) *Error {
			if e, ok := errors.AsType[*identity.UnauthenticatedError](err); ok {
				return &Error{Kind: KindUnauthenticated, Message: e.Reason}
			}
			return nil
		}
		cfg.Authenticate, cfg.Abandon = m.authenticate, m.registry.Abandon
	})
	m.certs["replica "+valid], m.certs["replica "+revoked] = m.replicaOf(t, "n2").Cert, m.replicaOf(t, "n3").Cert
	for _, name := range rightsColumns {
		if p := identities[name]; p != nil && p.Role != auth.Replica {
			for _, state := range []string{valid, expired, revoked} {
				m.create(t, name, state, p)
			}
		}
	}
	m.create(t, "ml", valid, identities["ml"])
	return m
}

func (m *matrix) replicaOf(t *testing.T, id string) *tlsconf.Replica {
	t.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := m.ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tlsconf.Save(dir, cert, key, m.ca.Cert); err != nil {
		t.Fatal(err)
	}
	r, err := tlsconf.LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// create makes an identity whose credential is in a state.
func (m *matrix) create(t *testing.T, name, state string, p *auth.Principal) {
	t.Helper()
	c := fsm.Credential{Kind: fsm.TokenCredential}
	if p.Role == auth.Worker {
		pair, err := tlsconf.OpenWorkerKey(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		m.certs[name+" "+state], c.Kind, c.Hash = cert, fsm.KeyCredential, tlsconf.KeyHash(cert)
	} else {
		token := auth.NewToken()
		m.tokens[name+" "+state], c.Hash = token, token.Hash()
	}
	if state == expired {
		c.ExpiresMS = 2000
	}
	m.leader.op(t, &fsm.CreateIdentity{Name: name + "-" + state, Grant: fsm.Grant{Role: fsm.Role(p.Role), Namespaces: p.Namespaces}, Credential: c, CreatedMS: 1000})
	m.made++
	if state == revoked {
		m.leader.op(t, &fsm.RevokeIdentity{IDs: []fsm.IdentityID{m.made}, AtMS: 1500})
	}
}

// authenticate gives each call the credential that its metadata names, as the connection of
// the caller would, and asks the registry who it is.
func (m *matrix) authenticate(ctx context.Context, method string) (context.Context, *auth.Principal, error) {
	name := strings.Join(metadata.ValueFromIncomingContext(ctx, callerKey), "")
	if !strings.Contains(name, " ") && name != "" {
		name += " " + valid
	}
	md := metadata.MD{}
	if token, ok := m.tokens[name]; ok {
		md.Set("authorization", token.Header())
	}
	state := tls.ConnectionState{}
	if cert, ok := m.certs[name]; ok {
		state.PeerCertificates = []*x509.Certificate{cert}
	}
	ctx = peer.NewContext(metadata.NewIncomingContext(ctx, md), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
	return m.registry.Authenticate(ctx, method)
}

// TestTheMatrixOfRights calls every method as every identity with a credential that is valid,
// expired or revoked, for a job of its namespace, of another one and for an unknown one, and
// under a path without a slash; and it names foreign jobs among others in one request.
func TestTheMatrixOfRights(t *testing.T) {
	t.Parallel()
	var cases atomic.Int64
	t.Cleanup(func() { // the columns run in parallel until then
		t.Logf("%d cases", cases.Load())
		if n := cases.Load(); n <= 1500 {
			t.Errorf("only %d cases", n)
		}
	})
	for column, name := range rightsColumns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMatrix(t)
			own, foreign := m.submitAs(t, "submitter", "own", "etl", task("a"), task("b")), m.submitAs(t, "ml", "foreign", "ml", task("a"), task("b"))
			w := m.worker(t)
			for _, id := range []fsm.JobID{own, foreign} {
				m.assign(t, held(id, 0, 1, w))
			}
			m.checkDead(t, name, own, &cases)
			m.checkPaths(t, name, &cases)
			if strings.Contains(designedRight(t, dtaskv1.File_dtask_v1_jobs_proto.Services().ByName("JobService").Methods().ByName("WaitJobs"), column), "n") {
				m.checkInner(t, name, own, foreign, &cases)
			}
			m.checkValid(t, column, own, foreign, &cases)
		})
	}
}

// checkDead checks that credentials that have ended are refused by every method: also by those
// that need none, except for keys, by which a machine joins again.
func (m *matrix) checkDead(t *testing.T, name string, id fsm.JobID, cases *atomic.Int64) {
	t.Helper()
	for _, state := range []string{expired, revoked} {
		if key := name + " " + state; m.certs[key] == nil && m.tokens[key] == (auth.Token{}) {
			continue // anonymous callers have no credentials, and certificates of replicas no dates
		}
		for _, d := range methodsOf(t) {
			cases.Add(1)
			full := "/" + string(d.Parent().FullName()) + "/" + string(d.Name())
			err := m.invoke(as(t.Context(), name+" "+state), d, id)
			what := string(d.Name()) + " by " + name + ", " + state
			switch {
			case name == "worker" && auth.Rights(auth.Anonymous, full) != auth.None:
				if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied {
					t.Errorf("%s: got %v", what, err)
				}
			case name == "replica" && (d.Name() == "Admit" || d.Name() == "Identify"): // it asks why it is refused
				if status.Code(err) == codes.Unauthenticated {
					t.Errorf("%s: got %v", what, err)
				}
			default:
				wantDenied(t, what, err, true)
			}
		}
	}
}

// checkPaths checks that the path of a method without its first slash is refused.
func (m *matrix) checkPaths(t *testing.T, name string, cases *atomic.Int64) {
	t.Helper()
	for _, d := range methodsOf(t) {
		cases.Add(1)
		path := string(d.Parent().FullName()) + "/" + string(d.Name())
		err := m.conn.Invoke(as(t.Context(), name), path, &dtaskv1.GetJobRequest{}, &dtaskv1.Job{})
		if code := status.Code(err); code != codes.Unimplemented && code != codes.Unauthenticated {
			t.Errorf("%s by %s: got %v", path, name, err)
		}
	}
}

// checkInner checks what one request names beside a job that the caller has.
func (m *matrix) checkInner(t *testing.T, name string, own, foreign fsm.JobID, cases *atomic.Int64) {
	t.Helper()
	ctx := as(t.Context(), name)
	for _, jobs := range [][]fsm.JobID{{own, foreign}, {foreign, own}} {
		cases.Add(1)
		resp, err := m.jobs.ListJobs(ctx, &dtaskv1.ListJobsRequest{Limit: 1})
		if err != nil || len(resp.GetJobs()) != 1 || resp.GetJobs()[0].GetId() != formatJobID(own) || resp.GetNextPageToken() != "" {
			t.Errorf("the jobs of %s: got %v, %v", name, resp, err)
		}
		cases.Add(1)
		stream, err := m.jobs.WaitJobs(ctx, &dtaskv1.WaitJobsRequest{Jobs: []string{formatJobID(jobs[0]), formatJobID(jobs[1])}})
		var first *dtaskv1.WaitJobsResponse
		if err == nil {
			first, err = stream.Recv()
		}
		if got := first.GetUnknown(); err != nil || len(got) != 1 || got[0] != formatJobID(foreign) {
			t.Errorf("%s waits for %v: got unknown %v, %v", name, jobs, got, err)
		}
	}
	for _, namespace := range []string{"ml", "default"} {
		cases.Add(1)
		h := header("inner")
		h.Namespace = namespace
		if _, err := m.send(ctx, request("inner-"+namespace, h, task("a"))); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s submits to %s: got %v", name, namespace, err)
		}
	}
}

// checkValid checks every method for a job of the caller, for one of another namespace, and
// for one that does not exist.
func (m *matrix) checkValid(t *testing.T, column int, own, foreign fsm.JobID, cases *atomic.Int64) {
	t.Helper()
	name, unknown := rightsColumns[column], foreign+1000
	ctx := as(t.Context(), name)
	for _, d := range methodsOf(t) {
		right := designedRight(t, d, column)
		for _, id := range []fsm.JobID{own, foreign, unknown} {
			cases.Add(1)
			err := m.invoke(ctx, d, id)
			what := string(d.Name()) + " of job " + formatJobID(id) + " by " + name
			switch code := status.Code(err); {
			case right == ".":
				wantDenied(t, what, err, name == "anonymous")
			case code == codes.PermissionDenied || code == codes.Unauthenticated:
				t.Errorf("%s: got %v, want it to be allowed", what, err)
			case right == "n" && id == foreign && namesJob(d):
				want := m.invoke(ctx, d, unknown)
				got := strings.ReplaceAll(err.Error(), formatJobID(foreign), formatJobID(unknown))
				if code != codes.NotFound || got != want.Error() {
					t.Errorf("%s: got %v, want the error for an unknown job: %v", what, err, want)
				}
			case id != unknown && code == codes.NotFound:
				t.Errorf("%s: got %v", what, err)
			}
		}
	}
}
