package client

import "google.golang.org/grpc/credentials"

// TLS returns credentials for Config.Credentials that trust the coordinators of a
// cluster by its CA, in a file such as ca.crt of dtaskctl tls init. See Trust.
func TLS(caFile string) (credentials.TransportCredentials, error) {
	return Trust{CAFile: caFile}.Credentials()
}

// TLSWithKey is TLS for the hash of the CA's public key: sha256: and 64 hexadecimal
// digits, as dtaskctl tls init prints it.
func TLSWithKey(hash string) (credentials.TransportCredentials, error) {
	return Trust{CAKeys: []string{hash}}.Credentials()
}
