package document

import (
	"encoding/hex"
	"math"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// CreatedCA is a CA that dtaskctl tls init created.
type CreatedCA struct {
	Dir       string `json:"dir"`
	ClusterID string `json:"cluster_id"`
	KeyHash   string `json:"key_hash"`   // SHA-256 of the public key: sha256: and 64 hexadecimal digits
	ExpiresAt string `json:"expires_at"` // RFC 3339
}

// IssuedCertificate is a certificate of a replica that dtaskctl tls issue issued.
type IssuedCertificate struct {
	Dir       string   `json:"dir"`
	ClusterID string   `json:"cluster_id"`
	ServerID  string   `json:"server_id"`
	Hosts     []string `json:"hosts"`
	ExpiresAt string   `json:"expires_at"` // RFC 3339
}

// TLSStatus shows the CAs of a cluster, and who trusts them.
type TLSStatus struct {
	CAs            []CertificateAuthority `json:"cas"`            // the first one issues certificates
	RotatingSince  *string                `json:"rotating_since"` // RFC 3339; null: the CA is not being replaced by the cluster
	Replicas       []ReplicaCertificate   `json:"replicas"`
	Workers        uint32                 `json:"workers"`         // connected
	WorkersLacking []string               `json:"workers_lacking"` // connected, and have not stored all CAs
}

// CertificateAuthority is a CA that a cluster trusts.
type CertificateAuthority struct {
	KeyHash   string `json:"key_hash"`
	ExpiresAt string `json:"expires_at"`
	DaysLeft  int64  `json:"days_left"` // whole days; negative after the end
}

// ReplicaCertificate is the certificate of a replica. Only server_id, address and
// reachable are set if it does not answer.
type ReplicaCertificate struct {
	ServerID  string  `json:"server_id"`
	Address   string  `json:"address"`
	Reachable bool    `json:"reachable"`
	CAKeyHash *string `json:"ca_key_hash"`
	ExpiresAt *string `json:"expires_at"`
	DaysLeft  *int64  `json:"days_left"`
	Current   bool    `json:"current"`    // trusts the CAs of the cluster, and the first one issued its certificate
	HasCAKey  bool    `json:"has_ca_key"` // renews its certificate
}

// RotatedCA is the result of dtaskctl tls rotate-ca.
type RotatedCA struct {
	Already  bool      `json:"already"`   // nothing has changed
	MustJoin []string  `json:"must_join"` // who lacks the new CA, after --compromised
	Status   TLSStatus `json:"status"`
}

// NewTLSStatus converts the state of the certificates.
func NewTLSStatus(s *dtaskv1.TLSStatusResponse, now time.Time) TLSStatus {
	return TLSStatus{
		RotatingSince: optionalTime(s.GetRotatingSince()), Workers: s.GetWorkers(), WorkersLacking: append([]string{}, s.GetWorkersLacking()...),
		CAs: list(s.GetCas(), func(ca *dtaskv1.CertificateAuthority) CertificateAuthority {
			return CertificateAuthority{KeyHash: keyHash(ca.GetKeyHash()), ExpiresAt: Time(ca.GetExpiresAt()), DaysLeft: daysLeft(ca.GetExpiresAt(), now)}
		}),
		Replicas: list(s.GetReplicas(), func(r *dtaskv1.ReplicaCertificate) ReplicaCertificate {
			c := ReplicaCertificate{ServerID: r.GetServerId(), Address: r.GetAddress(), Reachable: r.GetReachable(), Current: r.GetCurrent(), HasCAKey: r.GetHasCaKey()}
			if r.GetReachable() {
				hash, days := keyHash(r.GetCaKeyHash()), daysLeft(r.GetExpiresAt(), now)
				c.CAKeyHash, c.ExpiresAt, c.DaysLeft = &hash, optionalTime(r.GetExpiresAt()), &days
			}
			return c
		}),
	}
}

// NewRotatedCA converts the result of a rotation.
func NewRotatedCA(r *dtaskv1.RotateCAResponse, now time.Time) RotatedCA {
	return RotatedCA{Already: r.GetAlready(), MustJoin: append([]string{}, r.GetMustJoin()...), Status: NewTLSStatus(r.GetStatus(), now)}
}

func keyHash(hash []byte) string { return "sha256:" + hex.EncodeToString(hash) }

func daysLeft(ms int64, now time.Time) int64 {
	return int64(math.Floor(time.UnixMilli(ms).Sub(now).Hours() / 24))
}
