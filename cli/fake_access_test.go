package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeAccess is who has access to the fake cluster. The lock of the fakeLeader guards it.
type fakeAccess struct {
	caKey      []byte // SHA-256 of the public key of the CA
	identities []*dtaskv1.Identity
	strings    []*fakeJoinString
	ca         *tlsconf.CA
	joins      []*dtaskv1.JoinRequest       // that were received
	joined     map[string]*dtaskv1.Identity // by key
}

// A fakeJoinString is a join string as the cluster keeps it.
type fakeJoinString struct {
	*dtaskv1.JoinToken

	hash []byte
}

func newFakeAccess() fakeAccess {
	return fakeAccess{caKey: make([]byte, 32), joined: make(map[string]*dtaskv1.Identity), identities: []*dtaskv1.Identity{
		{Id: 1, Name: "root", Role: "admin", CreatedAt: ago(48 * time.Hour), LastUsedAt: ago(time.Minute), State: "active", CreatedBy: "init"},
		{Id: 2, Name: "w1\x1b[2J", Role: "worker", Namespaces: []string{"etl"}, CreatedAt: ago(time.Hour), State: "active", CreatedBy: "root"},
	}}
}

func (f *fakeLeader) WhoAmI(context.Context, *dtaskv1.WhoAmIRequest) (*dtaskv1.WhoAmIResponse, error) {
	return &dtaskv1.WhoAmIResponse{Id: 1, Name: "root", Role: "admin", Via: "token", ExpiresAt: ago(-30 * 24 * time.Hour), ClusterId: fakeCluster}, nil
}

// expiry returns when something expires that is made now.
func expiry(ttlMS int64) int64 {
	if ttlMS == 0 {
		return 0
	}
	return noon.UnixMilli() + ttlMS
}

func (f *fakeLeader) CreateToken(_ context.Context, r *dtaskv1.CreateTokenRequest) (*dtaskv1.CreateTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	namespaces := r.GetNamespaces()
	if len(namespaces) == 0 && (r.GetRole() == "submitter" || r.GetRole() == "reader") {
		namespaces = []string{"default"}
	}
	made, err := f.addLocked(&dtaskv1.Identity{
		Name: r.GetName(), Role: r.GetRole(), Namespaces: namespaces, ExpiresAt: expiry(r.GetTtlMs()),
		Credentials: []*dtaskv1.Credential{{Id: hex.EncodeToString(r.GetTokenHash()[:4]), Kind: "token", CreatedAt: noon.UnixMilli(), ExpiresAt: expiry(r.GetTtlMs())}},
	})
	return &dtaskv1.CreateTokenResponse{Identity: made}, err
}

// addLocked adds an identity.
func (f *fakeLeader) addLocked(i *dtaskv1.Identity) (*dtaskv1.Identity, error) {
	for _, other := range f.identities {
		if other.GetName() == i.GetName() && other.GetState() == "active" {
			return nil, refusal(codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, fmt.Sprintf("identity %d has the name %s", other.GetId(), i.GetName()))
		}
	}
	i.Id, i.CreatedAt, i.State, i.CreatedBy = uint64(len(f.identities)+1), noon.UnixMilli(), "active", "root"
	f.identities = append(f.identities, i)
	return i, nil
}

func (f *fakeLeader) ListTokens(_ context.Context, r *dtaskv1.ListTokensRequest) (*dtaskv1.ListTokensResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := new(dtaskv1.ListTokensResponse)
	for _, i := range f.identities {
		if r.GetAll() || i.GetState() == "active" {
			resp.Identities = append(resp.Identities, i)
		}
	}
	return resp, nil
}

// identityLocked returns an identity by its ID.
func (f *fakeLeader) identityLocked(id uint64) (*dtaskv1.Identity, error) {
	if id > uint64(len(f.identities)) {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, fmt.Sprintf("identity %d not found", id))
	}
	return f.identities[id-1], nil
}

func (f *fakeLeader) RotateToken(_ context.Context, r *dtaskv1.RotateTokenRequest) (*dtaskv1.RotateTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := f.identityLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	for _, old := range i.GetCredentials() {
		old.ExpiresAt = expiry(r.GetOverlapMs())
	}
	i.ExpiresAt = expiry(r.GetTtlMs())
	i.Credentials = append(i.GetCredentials(), &dtaskv1.Credential{Id: hex.EncodeToString(r.GetTokenHash()[:4]), Kind: "token", CreatedAt: noon.UnixMilli(), ExpiresAt: i.GetExpiresAt()})
	return &dtaskv1.RotateTokenResponse{Identity: i}, nil
}

func (f *fakeLeader) RevokeToken(_ context.Context, r *dtaskv1.RevokeTokenRequest) (*dtaskv1.RevokeTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, err := f.identityLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	already := i.GetState() == "revoked"
	i.State = "revoked"
	return &dtaskv1.RevokeTokenResponse{Identity: i, Already: already, LastAdmin: i.GetRole() == "admin"}, nil
}

func (f *fakeLeader) CreateJoinToken(_ context.Context, r *dtaskv1.CreateJoinTokenRequest) (*dtaskv1.CreateJoinTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &dtaskv1.JoinToken{
		Id: uint64(len(f.strings) + 1), Purpose: r.GetPurpose(), Role: r.GetRole(), Namespaces: r.GetNamespaces(), NamePattern: r.GetNamePattern(),
		Labels: r.GetLabels(), CreatedBy: "root", CreatedAt: noon.UnixMilli(), ExpiresAt: expiry(r.GetTtlMs()), Uses: r.GetUses(), State: "active",
	}
	f.strings = append(f.strings, &fakeJoinString{JoinToken: j, hash: r.GetSecretHash()})
	return &dtaskv1.CreateJoinTokenResponse{JoinToken: j, ClusterId: fakeCluster, CaKeyHash: f.caKey, Addresses: []string{f.addr}}, nil
}

func (f *fakeLeader) ListJoinTokens(_ context.Context, r *dtaskv1.ListJoinTokensRequest) (*dtaskv1.ListJoinTokensResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := new(dtaskv1.ListJoinTokensResponse)
	for _, j := range f.strings {
		if r.GetAll() || j.GetState() == "active" {
			resp.JoinTokens = append(resp.JoinTokens, j.JoinToken)
		}
	}
	return resp, nil
}

func (f *fakeLeader) RevokeJoinToken(_ context.Context, r *dtaskv1.RevokeJoinTokenRequest) (*dtaskv1.RevokeJoinTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.strings, func(j *fakeJoinString) bool { return j.GetId() == r.GetId() })
	if i < 0 {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, fmt.Sprintf("join string %d not found", r.GetId()))
	}
	j := f.strings[i]
	already := j.GetState() == "revoked"
	j.State = "revoked"
	return &dtaskv1.RevokeJoinTokenResponse{JoinToken: j.JoinToken, Already: already}, nil
}
