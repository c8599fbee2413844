package client

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestATokenIsSentWithEveryCallToThisMachine(t *testing.T) {
	t.Parallel()
	token := auth.NewToken()
	socket := filepath.Join(t.TempDir(), "d #1.sock")
	for name, l := range map[string]net.Listener{"port": listen(t, "tcp", "127.0.0.1:0"), "socket": listen(t, "unix", socket)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := new(recorder)
			serveListener(t, l, nil, new(fake), rec)
			addr := l.Addr().String()
			if name == "socket" {
				addr = "unix:" + addr
			}
			c := newClient(t, Config{Addrs: []string{addr}, Token: token.Text()})
			if who, err := c.WhoAmI(t.Context()); err != nil || who.GetName() != "ci" {
				t.Fatalf("got %v, %v", who, err)
			}
			headers, requests := rec.all()
			if len(headers) != len(requests) || len(headers) == 0 || slices.ContainsFunc(headers, func(h string) bool { return h != token.Header() }) {
				t.Errorf("%d of %d calls had the token", len(headers), len(requests))
			}
		})
	}
}

func TestATokenIsNotSentInClearToAnotherMachine(t *testing.T) {
	t.Parallel()
	n, _ := setup(t, Config{})
	n.serve(t, "10.0.0.1:7460", &fake{})
	c := newClient(t, Config{
		Addrs: []string{"10.0.0.1:7460"}, Token: auth.NewToken().Text(), Dial: n.dial, Credentials: insecure.NewCredentials(),
	})
	if _, err := c.WhoAmI(t.Context()); !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "the token is not sent without TLS") {
		t.Errorf("got %v, want ErrUntrusted", err)
	}
}

func TestAnInvalidTokenIsRefusedWithoutPrintingIt(t *testing.T) {
	t.Parallel()
	text := auth.NewToken().Text().Reveal()
	for _, bad := range []string{text[:len(text)-1], "x" + text, "hunter2"} {
		_, err := New(Config{Token: Secret(bad)})
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), bad) || strings.Contains(err.Error(), text[20:30]) {
			t.Errorf("got %v", err)
		}
	}
	if got := fmt.Sprintf("%+v %#v", Config{Token: Secret(text)}, Config{Token: Secret(text)}); strings.Contains(got, text[20:30]) {
		t.Errorf("printed: %s", got)
	}
}

func TestARefusalOfTheCallerIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code codes.Code
		kind error
	}{{codes.Unauthenticated, ErrUnauthenticated}, {codes.PermissionDenied, ErrRefused}} {
		t.Run(test.code.String(), func(t *testing.T) {
			t.Parallel()
			rec := &recorder{refuse: refused(test.code, "the token was revoked: ask for another one")}
			c := newClient(t, Config{Addrs: []string{serveRecorder(t, nil, rec)}})
			began := time.Now()
			_, err := c.WhoAmI(t.Context())
			if !errors.Is(err, test.kind) || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the token was revoked: ask for another one") {
				t.Errorf("got %v, want %v", err, test.kind)
			}
			_, status := c.ClusterStatus(t.Context())
			_, ident := c.Identify(t.Context())
			for _, err := range []error{status, ident} {
				if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), "the token was revoked") {
					t.Errorf("asking all: got %v, want %v", err, test.kind)
				}
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestTheSocketOfACoordinatorNeedsAnAbsolutePath(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"unix:", "unix:dtaskd.sock"} {
		if _, err := New(Config{Addrs: []string{addr}}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v", addr, err)
		}
	}
}

func TestACreatedTokenIsMadeByTheClient(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	c := newClient(t, Config{Addrs: []string{serveRecorder(t, nil, rec)}})
	text, who, err := c.CreateToken(t.Context(), TokenOptions{Name: "ci", Role: "submitter", Namespaces: []string{"etl"}, TTL: time.Hour})
	if err != nil || who.GetId() != 7 {
		t.Fatalf("got %v, %v", who, err)
	}
	rotated, _, err := c.RotateToken(t.Context(), 7, 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	_, requests := rec.all()
	for _, req := range requests {
		switch q := req.(type) {
		case *dtaskv1.CreateTokenRequest:
			wantHash(t, text, q.GetTokenHash())
			if q.GetKey() == "" || q.GetTtlMs() != time.Hour.Milliseconds() {
				t.Errorf("got %v", q)
			}
		case *dtaskv1.RotateTokenRequest:
			wantHash(t, rotated, q.GetTokenHash())
			if q.GetTtlMs() != 0 || q.GetOverlapMs() != time.Minute.Milliseconds() {
				t.Errorf("got %v", q)
			}
		}
		if sent := fmt.Sprint(req); strings.Contains(sent, text.Reveal()[16:40]) || strings.Contains(sent, rotated.Reveal()[16:40]) {
			t.Errorf("the secret was sent: %s", sent)
		}
	}
}

func wantHash(t *testing.T, text Secret, hash []byte) {
	t.Helper()
	token, err := auth.ParseToken(text.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if want := token.Hash(); !slices.Equal(want[:], hash) {
		t.Errorf("token %s: the cluster got another hash", token.ID())
	}
}

func TestAJoinStringHasWhatTheClusterAnsweredAndASecretThatItNeverSaw(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	c := newClient(t, Config{Addrs: []string{serveRecorder(t, nil, rec)}})
	text, _, err := c.CreateJoinToken(t.Context(), JoinTokenOptions{Purpose: "worker", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	j, err := auth.ParseJoinString(text.Reveal(), auth.JoinWorker)
	if err != nil || j.ClusterID != testCluster || !slices.Equal(j.Addresses, []string{"m1:7460", "m2:7460"}) {
		t.Fatalf("got %+v, %v", j, err)
	}
	_, requests := rec.all()
	q, ok := requests[len(requests)-1].(*dtaskv1.CreateJoinTokenRequest)
	if want := j.Hash(); !ok || !slices.Equal(q.GetSecretHash(), want[:]) || j.ID != 5 {
		t.Errorf("got %v", q)
	}
	if _, _, err := c.CreateJoinToken(t.Context(), JoinTokenOptions{Purpose: "guest"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown purpose: got %v", err)
	}
}
