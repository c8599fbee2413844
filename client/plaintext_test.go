package client

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
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
	// A leader's address comes from a coordinator.
	if _, err := dialTCP(true)(t.Context(), "10.0.0.1:7460"); err == nil || !strings.Contains(err.Error(), "no TLS") {
		t.Errorf("dialing a leader off loopback: %v", err)
	}
}
