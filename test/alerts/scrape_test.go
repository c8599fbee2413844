package alerts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Prometheus scrapes three coordinators over HTTPS with the CA and a token with the role
// metrics. It gets nothing with another role, with a token that was revoked, without a token
// or without the CA.
func TestPrometheusScrapesOverTLSWithATokenForMetricsOnly(t *testing.T) {
	t.Parallel()
	needsSuite(t)
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{TLS: true})
	targets := serveHTTPS(t, c)
	tokens := make(map[string]string) // files
	for name, role := range map[string]string{"scraper": "metrics", "former": "metrics", "reader": "reader"} {
		_, err := c.As(ctx, c.Dir, name, role)
		clustertest.Must(t, err)
		tokens[name] = filepath.Join(c.Dir, name+".token")
	}
	ca := map[string]any{"ca_file": c.Secrets().CA}
	secure := func(name string, trust map[string]any, token string) map[string]any {
		j := job(name, targets)
		j["scheme"], j["tls_config"] = "https", trust
		if token != "" {
			j["authorization"] = map[string]any{"credentials_file": token}
		}
		return j
	}
	s := start(t, c, map[string]any{"scrape_configs": []any{
		secure("dtaskd", ca, tokens["scraper"]), secure("former", ca, tokens["former"]), secure("reader", ca, tokens["reader"]),
		secure("nobody", ca, ""), secure("untrusting", map[string]any{}, tokens["scraper"]),
	}})
	s.await(t, `sum(up{job="dtaskd"})`, 3)
	s.await(t, `sum(up{job="former"})`, 3)

	number, err := c.Identity(ctx, "former")
	clustertest.Must(t, err)
	clustertest.Must(t, c.Run(ctx, "token", "revoke", number).Err())
	for name, reason := range map[string]string{
		"former": "HTTP status 401", "reader": "HTTP status 403", "nobody": "HTTP status 401",
		"untrusting": "certificate signed by unknown authority",
	} {
		clustertest.Must(t, cluster.Until(ctx, "Prometheus reports why it can't scrape as "+name, startLimit, func(ctx context.Context) error {
			return s.allDown(ctx, name, reason)
		}))
	}
	s.await(t, "sum(up)", 3) // the others are down, and those with the right token are not
	s.await(t, `count(dtask_raft_term{job="dtaskd"})`, 3)
}

// serveHTTPS restarts the coordinators one by one with a port for metrics that other machines
// can reach, and a certificate that names its address. It returns the addresses.
func serveHTTPS(t *testing.T, c *cluster.Cluster) (targets []string) {
	t.Helper()
	ctx := t.Context()
	secrets := filepath.Join(c.Dir, cluster.SecretsDir)
	for _, n := range c.Coordinators() {
		clustertest.Must(t, c.Run(ctx, "tls", "issue", "--ca", filepath.Join(secrets, "ca"), "--replica", n.Name,
			"--out", filepath.Join(secrets, n.Name), "--san", "127.0.0.1").Err())
		address, err := cluster.FreePort(ctx)
		clustertest.Must(t, err)
		_, port, err := net.SplitHostPort(address)
		clustertest.Must(t, err)
		clustertest.Must(t, n.Terminate())
		_, err = n.Wait(ctx)
		clustertest.Must(t, err)
		n.AddArgs("--http", "0.0.0.0:"+port)
		clustertest.Must(t, n.Start(ctx))
		targets = append(targets, "127.0.0.1:"+port)
	}
	clustertest.Leader(t, c)
	return targets
}

// allDown returns an error unless all targets of a job are down for a reason.
func (s *server) allDown(ctx context.Context, job, reason string) error {
	var data struct {
		ActiveTargets []struct {
			Labels            map[string]string
			Health, LastError string
		}
	}
	if err := s.get(ctx, "targets?state=active", &data); err != nil {
		return err
	}
	var err error
	down := 0
	for _, target := range data.ActiveTargets {
		switch {
		case target.Labels["job"] != job:
		case target.Health == "down" && strings.Contains(target.LastError, reason):
			down++
		default:
			err = errors.Join(err, fmt.Errorf("%w: %+v", cluster.ErrNotYet, target))
		}
	}
	if err == nil && down != 3 {
		err = fmt.Errorf("%w: %d are down", cluster.ErrNotYet, down)
	}
	return err
}
