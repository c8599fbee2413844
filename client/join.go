package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A JoinString is what a machine or a person joins a cluster with. ParseJoinString
// makes it.
type JoinString struct{ parsed *auth.JoinString }

// ParseJoinString parses a join string for a purpose: coordinator, worker or user. The
// error is ErrInvalid if the text is not a join string, or was cut or mistyped, and
// ErrRefused if it is for another purpose. It never contains the text.
func ParseJoinString(text Secret, purpose string) (JoinString, error) {
	want, err := auth.ParsePurpose(purpose)
	if err != nil {
		return JoinString{}, &Error{Kind: ErrInvalid, Message: err.Error()}
	}
	parsed, err := auth.ParseJoinString(text.Reveal(), want)
	if err == nil {
		return JoinString{parsed}, nil
	}
	for other := auth.JoinCoordinator; other <= auth.JoinUser; other++ {
		if _, otherErr := auth.ParseJoinString(text.Reveal(), other); otherErr == nil {
			return JoinString{}, &Error{Kind: ErrRefused, Message: err.Error()}
		}
	}
	return JoinString{}, &Error{Kind: ErrInvalid, Message: err.Error()}
}

// IsJoinString reports whether a text is meant as a join string.
func IsJoinString(text string) bool { return auth.IsJoinString(text) }

// Cluster returns the ID of the cluster.
func (j JoinString) Cluster() string { return j.parsed.ClusterID }

// ClusterName returns the name that the cluster had when the string was made; empty: none.
func (j JoinString) ClusterName() string { return j.parsed.ClusterName }

// Addresses returns the addresses of coordinators.
func (j JoinString) Addresses() []string { return j.parsed.Addresses }

// ID returns the number of the string, as dtaskctl join-token list shows it.
func (j JoinString) ID() uint64 { return j.parsed.ID }

// CAKey returns the hash of the key of the cluster's CA, in the form of Trust.CAKeys.
func (j JoinString) CAKey() string { return keyText(j.parsed.CAKey) }

// Pins reports whether a hash is that of the key of the cluster's CA.
func (j JoinString) Pins(hash [32]byte) bool { return j.parsed.CAKey == hash }

// JoinOptions say who joins.
type JoinOptions struct {
	String JoinString
	Name   string // of the new identity: 1–63 letters, digits, dots, - and _
	// Token is the token of a user, which the caller has made; see NewToken. The cluster
	// gets a hash of its secret.
	Token Secret
	// KeyHash is SHA-256 of the public key of a worker.
	KeyHash [32]byte
	// Replace takes the name from an identity with another key: the machine has lost its
	// key.
	Replace bool
}

// Joined is what a member of a cluster keeps.
type Joined struct {
	Identity  *dtaskv1.Identity
	Cluster   string   // ID
	Addresses []string // of coordinators
	CA        string   // certificates in PEM; empty: only the key is known
	CAKey     string   // hash of the key that the join string has
}

// NewToken makes a token for Join.
func NewToken() Secret { return auth.NewToken().Text() }

// Join makes an identity by a join string. It connects to the addresses of the string,
// and sends the secret only to a replica of the cluster whose CA has the key that the
// string has. The other fields of cfg than Addrs, Cluster, Credentials and Token apply.
//
// Repeating it with the same token or key returns the same identity, and counts one use
// of the string. The error is ErrUntrusted if no address leads to that cluster, and
// ErrRefused if the string has expired, was used up or revoked, or does not allow the
// name.
func Join(ctx context.Context, cfg Config, opts JoinOptions) (*Joined, error) {
	j := opts.String.parsed
	req := &dtaskv1.JoinRequest{
		JoinToken: j.ID, JoinSecret: j.Secret[:], Purpose: j.Purpose.String(), Name: opts.Name, Replace: opts.Replace,
	}
	if opts.Token != "" {
		token, err := auth.ParseToken(opts.Token.Reveal())
		if err != nil {
			return nil, &Error{Kind: ErrInvalid, Message: "invalid token: " + err.Error()}
		}
		hash := token.Hash()
		req.TokenHash, req.Key = hash[:], fmt.Sprintf("join-%d-%x", j.ID, hash[:16])
	} else {
		req.PublicKeyHash, req.Key = opts.KeyHash[:], fmt.Sprintf("join-%d-%x", j.ID, opts.KeyHash[:16])
	}
	cfg.Addrs, cfg.Cluster, cfg.Token = j.Addresses, j.ClusterID, ""
	cfg.Credentials = credentials.NewTLS(joinTLS(j.CAKey, j.ClusterID, time.Now))
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // its calls have ended
	got, err := call(ctx, c, operation{name: "joining the cluster", timeout: changeLimit}, dtaskv1.AuthServiceClient.Join, req)
	if err != nil {
		return nil, err
	}
	return joined(j, got)
}

// joined checks the answer of the cluster.
func joined(j *auth.JoinString, got *dtaskv1.JoinResponse) (*Joined, error) {
	if got.GetClusterId() != j.ClusterID {
		return nil, &Error{Message: fmt.Sprintf("joining the cluster: the answer is of cluster %q, not %s", got.GetClusterId(), j.ClusterID)}
	}
	joined := &Joined{Identity: got.GetIdentity(), Cluster: j.ClusterID, Addresses: got.GetAddresses(), CAKey: keyText(j.CAKey)}
	if len(joined.Addresses) == 0 {
		joined.Addresses = j.Addresses
	}
	for _, addr := range joined.Addresses {
		if err := checkAddress(addr, false); err != nil {
			return nil, &Error{Message: "joining the cluster: " + err.Error()}
		}
	}
	var out bytes.Buffer
	pinned := false
	for _, der := range got.GetRoots() {
		cert, err := x509.ParseCertificate(der)
		if err != nil || !cert.IsCA {
			return nil, &Error{Message: "joining the cluster: the answer has an invalid CA"}
		}
		pinned = pinned || tlsconf.KeyHash(cert) == j.CAKey
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return nil, errors.Join(errors.New("encoding the CA"), err)
		}
	}
	if pinned {
		joined.CA = out.String()
	}
	return joined, nil
}
