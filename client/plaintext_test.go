package client

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestWithoutTLSOnlyLoopbackIsDialed(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Addrs: []string{"127.0.0.1:7460", "10.0.0.1:7460", "db1:7460"}})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"10.0.0.1:7460"`) || !strings.Contains(err.Error(), `"db1:7460"`) {
		t.Errorf("got %v, want an error about both addresses", err)
	}
	c, err := New(Config{Addrs: []string{"10.0.0.1:7460"}, Credentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13})})
	if err != nil {
		t.Fatalf("with TLS: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestALeaderOffThisMachineIsNotDialedInPlaintext(t *testing.T) {
	t.Parallel()
	addr := serveTCP(t, nil, &fake{getJob: func(string) (*dtaskv1.Job, error) { return nil, notLeader("10.0.0.1:7460") }})
	c := newClient(t, Config{Addrs: []string{addr}})
	_, err := c.Job(t.Context(), "42", ReadOptions{})
	if !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "10.0.0.1:7460: not on this machine") {
		t.Errorf("got %v, want ErrUntrusted", err)
	}
}
