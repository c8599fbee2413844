package main

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/bench/load"
)

// identities are the flags of a cluster with TLS.
type identities struct {
	ca, token, join string // files
}

// client adds to a configuration whom the client trusts, and its token.
func (i identities) client(cfg client.Config) (client.Config, error) {
	if i.ca == "" {
		return cfg, nil
	}
	creds, err := client.TLS(i.ca)
	if err != nil {
		return cfg, err //nolint:wrapcheck // names the file
	}
	token, err := os.ReadFile(i.token)
	if err != nil {
		return cfg, fmt.Errorf("reading the token: %w", err)
	}
	cfg.Credentials, cfg.Token = creds, client.Secret(token)
	return cfg, nil
}

// workers returns what secures the connection of each worker; nil without TLS.
func (i identities) workers(ctx context.Context, names []string) ([]credentials.TransportCredentials, error) {
	if i.join == "" {
		return nil, nil
	}
	return load.Identities(ctx, i.ca, i.join, names) //nolint:wrapcheck // says what it is
}
