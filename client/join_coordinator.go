package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// JoinCoordinator gets a server id and a certificate for a coordinator, whose key signed
// own. The certificate is for hosts, DNS names and IP addresses. If replace is the server
// id of a lost member, the coordinator is to take its place; empty means none. Apart from
// that it is Join. The caller checks the answer.
func JoinCoordinator(ctx context.Context, cfg Config, s JoinString, own *tls.Certificate, hosts []string, replace string) (*dtaskv1.JoinResponse, error) {
	j := s.parsed
	conf := joinTLS(j.CAKey, j.ClusterID, time.Now)
	conf.Certificates = []tls.Certificate{*own}
	cfg.Addrs, cfg.Cluster, cfg.Token, cfg.Credentials = j.Addresses, j.ClusterID, "", credentials.NewTLS(conf)
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // its calls have ended
	return call(ctx, c, operation{name: "joining the cluster", timeout: changeLimit}, dtaskv1.AuthServiceClient.Join, &dtaskv1.JoinRequest{
		JoinToken: j.ID, JoinSecret: j.Secret[:], Purpose: auth.JoinCoordinator.String(), Key: rand.Text(),
		PublicKey: own.Leaf.RawSubjectPublicKeyInfo, Hosts: hosts, ReplaceServer: replace,
	})
}
