package client

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// WhoAmI describes the caller as the cluster sees it.
func (c *Client) WhoAmI(ctx context.Context) (*dtaskv1.WhoAmIResponse, error) {
	return call(ctx, c, operation{name: "reading who the caller is"}, dtaskv1.AuthServiceClient.WhoAmI, &dtaskv1.WhoAmIRequest{})
}

// TokenOptions describe a new token.
type TokenOptions struct {
	Name string // of the identity: 1–63 letters, digits, dots, - and _
	Role string // admin, operator, submitter, reader or metrics
	// Namespaces of a submitter or reader, or "*" alone. Default: the namespace default.
	Namespaces []string
	TTL        time.Duration // 0 = never expires
}

// CreateToken makes a token and an identity that has it. The cluster gets only a hash of
// its secret, so that nobody can ask for the token again. The error is ErrConflict if
// another identity has the name.
func (c *Client) CreateToken(ctx context.Context, opts TokenOptions) (Secret, *dtaskv1.Identity, error) {
	token := auth.NewToken()
	hash := token.Hash()
	got, err := call(ctx, c, operation{name: "creating token " + opts.Name, timeout: changeLimit}, dtaskv1.AuthServiceClient.CreateToken, &dtaskv1.CreateTokenRequest{
		Name: opts.Name, Role: opts.Role, Namespaces: opts.Namespaces, TtlMs: opts.TTL.Milliseconds(),
		Key: newKey(), TokenHash: hash[:],
	})
	if err != nil {
		return "", nil, err
	}
	return token.Text(), got.GetIdentity(), nil
}

// ListOptions select identities or join strings.
type ListOptions struct {
	All   bool // also revoked, expired and used ones
	Limit int  // 0 = no limit
}

// Tokens lists the identities of people, programs and workers, ascending by ID. It ends
// with the first error.
func (c *Client) Tokens(ctx context.Context, opts ListOptions) iter.Seq2[*dtaskv1.Identity, error] {
	return list(opts.Limit, "", func(limit uint32, token string) (*dtaskv1.ListTokensResponse, error) {
		req := &dtaskv1.ListTokensRequest{Limit: limit, PageToken: token, All: opts.All}
		return call(ctx, c, operation{name: "listing tokens"}, dtaskv1.AuthServiceClient.ListTokens, req)
	}, (*dtaskv1.ListTokensResponse).GetIdentities)
}

// RotateToken makes another token of an identity, which expires after ttl; 0 = never. The
// old one works until overlap has passed.
func (c *Client) RotateToken(ctx context.Context, id uint64, ttl, overlap time.Duration) (Secret, *dtaskv1.Identity, error) {
	token := auth.NewToken()
	hash := token.Hash()
	got, err := call(ctx, c, operation{name: "rotating the token", timeout: changeLimit}, dtaskv1.AuthServiceClient.RotateToken, &dtaskv1.RotateTokenRequest{
		Id: id, TtlMs: ttl.Milliseconds(), OverlapMs: overlap.Milliseconds(), TokenHash: hash[:],
	})
	if err != nil {
		return "", nil, err
	}
	return token.Text(), got.GetIdentity(), nil
}

// RevokeToken takes an identity's access away at once and for good, whether it has a
// token or a worker's key.
func (c *Client) RevokeToken(ctx context.Context, id uint64) (*dtaskv1.RevokeTokenResponse, error) {
	return call(ctx, c, operation{name: "revoking the token", timeout: changeLimit},
		dtaskv1.AuthServiceClient.RevokeToken, &dtaskv1.RevokeTokenRequest{Id: id})
}

// JoinTokenOptions describe a new join string.
type JoinTokenOptions struct {
	Purpose    string // coordinator, worker or user
	Role       string // of users. Default: admin
	Namespaces []string
	// NamePattern of names that may join, such as build-*. Default: any.
	NamePattern string
	Labels      map[string]string // granted to the workers that join
	TTL         time.Duration     // 0 = never expires: Uses or NamePattern is required
	Uses        uint32            // 0 = unlimited
}

// CreateJoinToken makes a join string. The cluster gets only a hash of its secret, so
// that nobody can ask for the string again.
func (c *Client) CreateJoinToken(ctx context.Context, opts JoinTokenOptions) (Secret, *dtaskv1.JoinToken, error) {
	purpose, err := auth.ParsePurpose(opts.Purpose)
	if err != nil {
		return "", nil, &Error{Kind: ErrInvalid, Message: err.Error()}
	}
	j := &auth.JoinString{Purpose: purpose, Secret: auth.NewJoinSecret()}
	hash := j.Hash()
	got, err := call(ctx, c, operation{name: "creating a join string", timeout: changeLimit}, dtaskv1.AuthServiceClient.CreateJoinToken, &dtaskv1.CreateJoinTokenRequest{
		Purpose: opts.Purpose, Role: opts.Role, Namespaces: opts.Namespaces, NamePattern: opts.NamePattern, Labels: opts.Labels,
		TtlMs: opts.TTL.Milliseconds(), Uses: opts.Uses, Key: newKey(), SecretHash: hash[:],
	})
	if err != nil {
		return "", nil, err
	}
	const maxAddresses = 8 // of a join string; one that is alive is enough
	j.ID = got.GetJoinToken().GetId()
	if purpose != auth.JoinWorker { // its programs may be older, and have no use for the name
		j.ClusterName = got.GetClusterName()
	}
	j.ClusterID, j.Addresses = got.GetClusterId(), got.GetAddresses()[:min(len(got.GetAddresses()), maxAddresses)]
	if n := copy(j.CAKey[:], got.GetCaKeyHash()); n != len(j.CAKey) || n != len(got.GetCaKeyHash()) {
		return "", nil, &Error{Message: "creating a join string: the coordinator has no CA: join strings need a cluster with TLS"}
	}
	text, err := j.Text()
	if err != nil {
		return "", nil, &Error{Message: "creating a join string: " + err.Error()}
	}
	return text, got.GetJoinToken(), nil
}

// JoinTokens lists the join strings that were made, without their secrets. It ends with
// the first error.
func (c *Client) JoinTokens(ctx context.Context, opts ListOptions) iter.Seq2[*dtaskv1.JoinToken, error] {
	return list(opts.Limit, "", func(limit uint32, token string) (*dtaskv1.ListJoinTokensResponse, error) {
		req := &dtaskv1.ListJoinTokensRequest{Limit: limit, PageToken: token, All: opts.All}
		return call(ctx, c, operation{name: "listing join strings"}, dtaskv1.AuthServiceClient.ListJoinTokens, req)
	}, (*dtaskv1.ListJoinTokensResponse).GetJoinTokens)
}

// RevokeJoinToken makes a join string useless. Identities that were made by it stay.
func (c *Client) RevokeJoinToken(ctx context.Context, id uint64) (*dtaskv1.RevokeJoinTokenResponse, error) {
	return call(ctx, c, operation{name: "revoking join string " + strconv.FormatUint(id, 10), timeout: changeLimit},
		dtaskv1.AuthServiceClient.RevokeJoinToken, &dtaskv1.RevokeJoinTokenRequest{Id: id})
}
