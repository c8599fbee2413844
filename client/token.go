package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/loopback"
)

// Secret is a text that must not be printed: formatting, logging and encoding it give
// ***. Reveal returns it. A string converts to it.
type Secret = auth.Secret

// tokenCredentials send a token with every call of one connection.
type tokenCredentials struct {
	header string
	local  bool // what is sent does not leave this machine
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": t.header}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. gRPC then checks each
// connection before it asks for the metadata.
func (t tokenCredentials) RequireTransportSecurity() bool { return !t.local }

var _ credentials.PerRPCCredentials = tokenCredentials{}

// tokenOptions returns the options that send the token, if there is one, to addr.
func (c Config) tokenOptions(addr string) ([]grpc.DialOption, error) {
	if c.Token == "" {
		return nil, nil
	}
	token, err := auth.ParseToken(c.Token.Reveal())
	if err != nil {
		return nil, fmt.Errorf("invalid token: %w", err)
	}
	local := isLocal(addr)
	if !local && c.Credentials.Info().SecurityProtocol == "insecure" {
		return nil, &untrustedError{err: errTokenInClear}
	}
	return []grpc.DialOption{grpc.WithPerRPCCredentials(tokenCredentials{header: token.Header(), local: local})}, nil
}

// errTokenInClear is returned for a connection on which others could read the token.
var errTokenInClear = errors.New("the token is not sent without TLS to an address that is not on this machine: set the CA of the cluster")

// isLocal reports whether nobody outside this machine can see what is sent to an address.
func isLocal(addr string) bool {
	_, socket := socketPath(addr)
	return socket || loopback.Is(addr)
}
