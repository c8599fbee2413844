package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/tlsconf"
)

// Trust is whom a client trusts: the CA of a cluster. At least one field must be set.
type Trust struct {
	// CAFile is the path of a file with certificates of CAs, such as ca.crt.
	CAFile string
	// CA has certificates of CAs in PEM.
	CA string
	// CAKeys are SHA-256 of the public keys of CAs, as sha256: and 64 hexadecimal digits.
	CAKeys []string
}

// Credentials returns what Config.Credentials needs to connect to a cluster: the server
// must have a certificate that the CA issued to a replica, and it must be valid by the
// clock of this machine. Host names are not checked, because the CA of a cluster issues
// certificates to its replicas only.
//
// When the CA of the cluster is replaced, a Client that is connected follows: it trusts the
// new CA from then on, and closes the connections to coordinators that only have a certificate
// of a dropped one. The next process needs the new CA in the Trust.
func (t Trust) Credentials() (credentials.TransportCredentials, error) {
	return t.FollowCA(nil)
}

// FollowCA is Credentials for a trust that the caller stores. It calls changed, unless it is
// nil, from any goroutine, with the CAs of the cluster in the form of Trust.CA if a coordinator
// that is trusted presents others than these. changed must not use the client.
func (t Trust) FollowCA(changed func(ca string)) (credentials.TransportCredentials, error) {
	trust, err := t.parse()
	if err != nil {
		return nil, err
	}
	return newFollowingCredentials(trust, changed), nil
}

// Keys returns the hash of the public key of each CA, in the form of CAKeys.
func (t Trust) Keys() ([]string, error) {
	trust, err := t.parse()
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(trust.Roots)+len(trust.Keys))
	for _, root := range trust.Roots {
		keys = append(keys, keyText(tlsconf.KeyHash(root)))
	}
	for _, key := range trust.Keys {
		keys = append(keys, keyText(key))
	}
	return keys, nil
}

func keyText(hash [32]byte) string { return fmt.Sprintf("sha256:%x", hash) }

func (t Trust) parse() (trust tlsconf.Trust, err error) {
	if t.CAFile != "" {
		if trust, err = tlsconf.ReadTrust(t.CAFile); err != nil {
			return trust, err
		}
	}
	for data := []byte(t.CA); len(data) > 0; {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !cert.IsCA {
			return trust, errors.New("invalid CA: must be certificates of CAs in PEM")
		}
		trust.Roots, data = append(trust.Roots, cert), rest
	}
	for _, text := range t.CAKeys {
		key, err := tlsconf.ParseKeyHash(text)
		if err != nil {
			return trust, err
		}
		trust.Keys = append(trust.Keys, key)
	}
	if len(trust.Roots)+len(trust.Keys) == 0 {
		return trust, errors.New("missing CA: set certificates or the hash of a key")
	}
	return trust, nil
}

// joinTLS returns the configuration of the connection over which the secret of a join
// string is sent. The server must be a replica of the cluster that the string names.
func joinTLS(key [32]byte, cluster string, now func() time.Time) *tls.Config {
	cfg := tlsconf.Trust{Keys: [][32]byte{key}}.Config(nil, now)
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		// What the certificate says is not proven if the chain is not trusted. It only
		// chooses the words.
		presented := ""
		if len(state.PeerCertificates) > 0 {
			presented, _, _ = tlsconf.PeerID(state.PeerCertificates[0])
		}
		err := verify(state)
		switch {
		case errors.Is(err, tlsconf.ErrOtherCA) && presented == cluster:
			return fmt.Errorf("the CA of the cluster has changed since this join string was made, so that it is not valid any more, or someone intercepts the connection (%w): create another join string", err)
		case err == nil && presented != cluster, errors.Is(err, tlsconf.ErrOtherCA) && presented != "":
			return fmt.Errorf("this join string is for cluster %s, and cluster %s answers at this address%s: use a join string of that cluster, or check the addresses", cluster, presented, cause(err))
		}
		return err
	}
	return cfg
}

func cause(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}
