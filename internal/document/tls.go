package document

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
