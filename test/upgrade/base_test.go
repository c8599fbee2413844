package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

// baseCommit returns the commit that the variable of the base names, or the file base; or
// the file base-tls for a cluster with TLS.
func baseCommit(tls bool) (string, error) {
	if commit := os.Getenv(baseVariable); commit != "" {
		return commit, nil
	}
	file := "base"
	if tls {
		file = "base-tls"
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the commit of the base build: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// buildBase builds the programs of a commit into dir.
func buildBase(ctx context.Context, repository, commit, dir string) (cluster.Programs, error) {
	programs, err := cluster.BuildCommit(ctx, repository, commit, dir, "./cmd/dtaskd", "./cmd/dtaskctl", "./test/cluster/mark-worker")
	if errors.Is(err, cluster.ErrUnknownCommit) {
		return programs, fmt.Errorf("the base, which test/upgrade/base names: %w", err)
	}
	return programs, err //nolint:wrapcheck // names the commit
}
