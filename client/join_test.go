package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// joinService answers Join.
type joinService struct {
	recorder

	join func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error)
}

func (s *joinService) Join(_ context.Context, r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
	return s.join(r)
}

func TestAJoinSendsHashesAndReturnsWhatAMemberKeeps(t *testing.T) {
	t.Parallel()
	ca, token := newCA(t, testCluster, time.Now()), NewToken()
	requests := make(chan *dtaskv1.JoinRequest, 1) // one call
	addr := serveJoin(t, credentials.NewTLS(replicaTLS(t, ca, time.Now())), func(r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		requests <- r
		return &dtaskv1.JoinResponse{
			Identity: &dtaskv1.Identity{Id: 7, Name: r.GetName()}, ClusterId: testCluster,
			Addresses: []string{"m1:7460"}, Roots: [][]byte{ca.Cert.Raw},
		}, nil
	})
	made, text := joinStringFor(t, ca, auth.JoinUser, addr)
	j, err := ParseJoinString(text, "user")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Join(t.Context(), Config{}, JoinOptions{String: j, Name: "ana", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{CA: got.CA}
	if keys, err := trust.Keys(); err != nil || len(keys) != 1 || keys[0] != j.CAKey() || got.Cluster != testCluster || got.Addresses[0] != "m1:7460" || got.Identity.GetId() != 7 {
		t.Errorf("got %+v, keys %v, %v", got, keys, err)
	}
	r := <-requests
	wantHash(t, token, r.GetTokenHash())
	if !bytes.Equal(r.GetJoinSecret(), made.Secret[:]) || r.GetJoinToken() != 5 || r.GetKey() == "" || strings.Contains(fmt.Sprint(r), token.Reveal()[16:40]) {
		t.Errorf("got %v", r)
	}
}

// serveJoin serves Join on a loopback port and returns its address.
func serveJoin(t *testing.T, creds credentials.TransportCredentials, join func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error)) string {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	serveAuth(t, l, creds, new(fake), &joinService{join: join})
	return l.Addr().String()
}

func TestASecretGoesOnlyToTheClusterOfTheJoinString(t *testing.T) {
	t.Parallel()
	const elsewhere = "ffffffffffffffffffffffffffffffff"
	ca := newCA(t, testCluster, time.Now())
	for name, test := range map[string]struct {
		served *tlsconf.CA
		want   []string
	}{
		"another cluster": {newCA(t, elsewhere, time.Now()), []string{"this join string is for cluster " + testCluster, "cluster " + elsewhere + " answers"}},
		"another CA":      {newCA(t, testCluster, time.Now()), []string{"the CA of the cluster has changed since this join string was made", "someone intercepts"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := intercept(t, replicaTLS(t, test.served, time.Now()))
			j, text := joinStringFor(t, ca, auth.JoinUser, x.addr)
			parsed, err := ParseJoinString(text, "user")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Join(t.Context(), Config{}, JoinOptions{String: parsed, Name: "ana", Token: NewToken()})
			keys := []string{keyText(tlsconf.KeyHash(ca.Cert)), keyText(tlsconf.KeyHash(test.served.Cert))}
			for _, part := range slices.Concat(test.want, keys) {
				if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, want %q in it", err, part)
				}
			}
			if got := x.received(); len(got) > 0 {
				t.Errorf("%d bytes were sent, the secret among them: %t", len(got), bytes.Contains(got, j.Secret[:]))
			}
			if strings.Contains(err.Error(), text.Reveal()[90:120]) {
				t.Error("the error contains the secret")
			}
		})
	}
}

// The same CA may have issued certificates for two clusters.
func TestASecretDoesNotGoToAnotherClusterOfTheSameCA(t *testing.T) {
	t.Parallel()
	ca := newCA(t, "ffffffffffffffffffffffffffffffff", time.Now())
	x := intercept(t, replicaTLS(t, ca, time.Now()))
	_, text := joinStringFor(t, ca, auth.JoinUser, x.addr)
	parsed, err := ParseJoinString(text, "user")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Join(t.Context(), Config{}, JoinOptions{String: parsed, Name: "ana", Token: NewToken()})
	if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "this join string is for cluster "+testCluster) || len(x.received()) > 0 {
		t.Errorf("got %v, %d bytes sent", err, len(x.received()))
	}
}

func TestARefusedJoinStringIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	ca, calls := newCA(t, testCluster, time.Now()), 0
	addr := serveJoin(t, credentials.NewTLS(replicaTLS(t, ca, time.Now())), func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		calls++
		return nil, refused(codes.PermissionDenied, "the join string expired at noon")
	})
	_, text := joinStringFor(t, ca, auth.JoinWorker, addr)
	parsed, err := ParseJoinString(text, "worker")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Join(t.Context(), Config{}, JoinOptions{String: parsed, Name: "w1"})
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "expired at noon") || calls != 1 {
		t.Errorf("%d calls: %v", calls, err)
	}
}

func TestEachFaultOfAJoinStringHasItsKind(t *testing.T) {
	t.Parallel()
	_, text := joinStringFor(t, newCA(t, testCluster, time.Now()), auth.JoinWorker, "m1:7460")
	for name, test := range map[string]struct {
		text Secret
		want error
	}{
		"an address":      {"m1:7460", ErrInvalid},
		"cut":             {text[:len(text)-4], ErrInvalid},
		"another purpose": {text, ErrRefused},
	} {
		_, err := ParseJoinString(test.text, "user")
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), text.Reveal()[90:120]) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}
