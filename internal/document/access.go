package document

import (
	"strconv"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Tokens is a list of identities.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Token is an identity of a person, a program, a worker or a coordinator, without its
// secrets.
type Token struct {
	ID         *string  `json:"id"` // null: a coordinator that only has a certificate
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Namespaces []string `json:"namespaces"` // empty: its role has all of them
	Via        string   `json:"via"`        // token, key or certificate
	CreatedBy  string   `json:"created_by"`
	CreatedAt  *string  `json:"created_at"`   // null = unknown
	ExpiresAt  *string  `json:"expires_at"`   // null = never
	LastUsedAt *string  `json:"last_used_at"` // null = unknown
	State      string   `json:"state"`
}

// NewToken is a token that was made just now, and whose it is. Nothing else has the
// secret.
type NewToken struct {
	Token      *string  `json:"token"` // null: it was written to a file
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Namespaces []string `json:"namespaces"`
	ExpiresAt  *string  `json:"expires_at"` // null = never
}

// RevokedToken is an identity without access.
type RevokedToken struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Already   bool   `json:"already"`    // it was revoked before
	LastAdmin bool   `json:"last_admin"` // no other token has the role admin
}

// WhoAmI is the caller as the cluster sees it.
type WhoAmI struct {
	ID         *string  `json:"id"` // null: not an identity that the cluster keeps
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Namespaces []string `json:"namespaces"`
	Via        string   `json:"via"`
	ExpiresAt  *string  `json:"expires_at"` // null = never
	ClusterID  string   `json:"cluster_id"`
}

// JoinTokens is a list of join strings.
type JoinTokens struct {
	JoinTokens []JoinToken `json:"join_tokens"`
}

// JoinToken is a join string without its secret.
type JoinToken struct {
	ID         string            `json:"id"`
	Purpose    string            `json:"purpose"`
	Role       string            `json:"role"`
	Namespaces []string          `json:"namespaces"`
	Name       string            `json:"name"` // pattern; empty = any
	Labels     map[string]string `json:"labels"`
	CreatedBy  string            `json:"created_by"`
	CreatedAt  string            `json:"created_at"`
	ExpiresAt  *string           `json:"expires_at"` // null = never
	Uses       uint32            `json:"uses"`       // 0 = unlimited
	Used       uint32            `json:"used"`
	State      string            `json:"state"`
}

// NewJoinToken is a join string that was made just now.
type NewJoinToken struct {
	JoinString *string `json:"join_string"` // null: it was written to a file
	JoinToken
}

// RevokedJoinToken is a join string that is useless now.
type RevokedJoinToken struct {
	ID      string `json:"id"`
	Already bool   `json:"already"` // it was revoked before
}

// Contexts is a list of the clusters that this user has logged in to.
type Contexts struct {
	Contexts []Context `json:"contexts"`
}

// Context is a cluster, and how this user connects to it.
type Context struct {
	Name      string   `json:"name"`
	Current   bool     `json:"current"` // used without --context
	ClusterID string   `json:"cluster_id"`
	Addresses []string `json:"addresses"`
	CAKeys    []string `json:"ca_keys"` // sha256: and the hash of the public key of each CA that is trusted
	ID        string   `json:"id"`      // of the identity; empty = unknown
	User      string   `json:"user"`    // name of the identity; empty = unknown
	TokenFile string   `json:"token_file"`
}

// Login is the result of a login: the context that it wrote, and whose token it has.
type Login struct {
	Context    string   `json:"context"`
	ClusterID  string   `json:"cluster_id"`
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Namespaces []string `json:"namespaces"`
	ExpiresAt  *string  `json:"expires_at"` // null = never
	// ReplacedID is the identity of the context that the login replaced; its token stays
	// valid. null: none.
	ReplacedID *string `json:"replaced_id"`
}

// NewTokens converts a list of identities.
func NewTokens(identities []*dtaskv1.Identity) Tokens {
	return Tokens{Tokens: list(identities, newToken)}
}

func newToken(i *dtaskv1.Identity) Token {
	doc := Token{
		Name: i.GetName(), Role: i.GetRole(), Namespaces: texts(i.GetNamespaces()), Via: Via(i),
		CreatedBy: i.GetCreatedBy(), CreatedAt: optionalTime(i.GetCreatedAt()), ExpiresAt: optionalTime(i.GetExpiresAt()),
		LastUsedAt: optionalTime(i.GetLastUsedAt()), State: i.GetState(),
	}
	if i.GetId() != 0 {
		doc.ID = new(identityID(i.GetId()))
	}
	return doc
}

// Via is how an identity proves that it is the one.
func Via(i *dtaskv1.Identity) string {
	switch i.GetRole() {
	case "replica": // its key counts only with a certificate for it
		return "certificate"
	case "worker":
		return "key"
	}
	return "token"
}

// NewNewToken describes a new token; an empty one was written to a file.
func NewNewToken(token string, i *dtaskv1.Identity) NewToken {
	return NewToken{
		Token: optional(token), ID: identityID(i.GetId()), Name: i.GetName(), Role: i.GetRole(),
		Namespaces: texts(i.GetNamespaces()), ExpiresAt: optionalTime(i.GetExpiresAt()),
	}
}

// NewRevokedToken converts the response to a revocation.
func NewRevokedToken(r *dtaskv1.RevokeTokenResponse) RevokedToken {
	return RevokedToken{
		ID: identityID(r.GetIdentity().GetId()), Name: r.GetIdentity().GetName(), Already: r.GetAlready(), LastAdmin: r.GetLastAdmin(),
	}
}

// NewWhoAmI converts the description of the caller.
func NewWhoAmI(w *dtaskv1.WhoAmIResponse) WhoAmI {
	doc := WhoAmI{
		Name: w.GetName(), Role: w.GetRole(), Namespaces: texts(w.GetNamespaces()), Via: w.GetVia(), ExpiresAt: optionalTime(w.GetExpiresAt()),
		ClusterID: w.GetClusterId(),
	}
	if w.GetId() != 0 {
		doc.ID = new(identityID(w.GetId()))
	}
	return doc
}

// NewJoinTokens converts a list of join strings.
func NewJoinTokens(tokens []*dtaskv1.JoinToken) JoinTokens {
	return JoinTokens{JoinTokens: list(tokens, newJoinToken)}
}

func newJoinToken(j *dtaskv1.JoinToken) JoinToken {
	doc := JoinToken{
		ID: identityID(j.GetId()), Purpose: j.GetPurpose(), Role: j.GetRole(), Namespaces: texts(j.GetNamespaces()), Name: j.GetNamePattern(),
		Labels: j.GetLabels(), CreatedBy: j.GetCreatedBy(), CreatedAt: Time(j.GetCreatedAt()), ExpiresAt: optionalTime(j.GetExpiresAt()),
		Uses: j.GetUses(), Used: j.GetUsed(), State: j.GetState(),
	}
	if doc.Labels == nil {
		doc.Labels = map[string]string{}
	}
	return doc
}

// NewNewJoinToken describes a new join string; an empty one was written to a file.
func NewNewJoinToken(text string, j *dtaskv1.JoinToken) NewJoinToken {
	return NewJoinToken{JoinString: optional(text), JoinToken: newJoinToken(j)}
}

// NewRevokedJoinToken converts the response to a revocation.
func NewRevokedJoinToken(r *dtaskv1.RevokeJoinTokenResponse) RevokedJoinToken {
	return RevokedJoinToken{ID: identityID(r.GetJoinToken().GetId()), Already: r.GetAlready()}
}

// NewLogin describes a login.
func NewLogin(context, cluster string, i *dtaskv1.Identity) Login {
	return Login{
		Context: context, ClusterID: cluster, ID: identityID(i.GetId()), Name: i.GetName(), Role: i.GetRole(),
		Namespaces: texts(i.GetNamespaces()), ExpiresAt: optionalTime(i.GetExpiresAt()),
	}
}

// identityID is the ID of an identity or a join string.
func identityID(id uint64) string { return strconv.FormatUint(id, 10) }

// texts returns a copy that is never nil, which JSON would show as null.
func texts(list []string) []string { return append([]string{}, list...) }

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
