package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
)

// maxJoining is how many workers join at the same time.
const maxJoining = 8

// Identities makes an identity with a key of its own for each worker of a cluster with TLS,
// and returns what secures the worker's connection, for Config.Secure. caFile has the CA of
// the cluster, and joinFile a join string for workers with any name.
func Identities(ctx context.Context, caFile, joinFile string, names []string) (all []credentials.TransportCredentials, err error) {
	text, err := os.ReadFile(joinFile)
	if err != nil {
		return nil, fmt.Errorf("reading the join string: %w", err)
	}
	join, err := client.ParseJoinString(client.Secret(text), "worker")
	if err != nil {
		return nil, fmt.Errorf("reading the join string: %w", err)
	}
	trust, err := tlsconf.ReadTrust(caFile)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	dir, err := os.MkdirTemp("", "dtask-keys-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the keys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	all = make([]credentials.TransportCredentials, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxJoining)
	for n, name := range names {
		group.Go(func() (err error) {
			all[n], err = joinAs(ctx, join, trust, filepath.Join(dir, name), name)
			return err
		})
	}
	return all, group.Wait() //nolint:wrapcheck // says what it is
}

// joinAs makes the identity of one worker. A worker of an earlier run loses the name.
func joinAs(ctx context.Context, join client.JoinString, trust tlsconf.Trust, dir, name string) (credentials.TransportCredentials, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for a key: %w", err)
	}
	key, err := tlsconf.OpenWorkerKey(dir)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	_, err = client.Join(ctx, client.Config{}, client.JoinOptions{String: join, Name: name, KeyHash: tlsconf.KeyHash(key.Leaf), Replace: true})
	if err != nil {
		return nil, err //nolint:wrapcheck // says what it is
	}
	return credentials.NewTLS(trust.Config(&key, nil)), nil
}
