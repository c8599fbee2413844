package client

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// rotateLimit is the timeout of one attempt to replace the CA: the leader waits until the
// coordinators use the new one.
const rotateLimit = 30 * time.Second

// TLSStatus shows the CAs of the cluster, and which coordinators and workers trust them.
func (c *Client) TLSStatus(ctx context.Context) (*dtaskv1.TLSStatusResponse, error) {
	return call(ctx, c, operation{name: "reading the state of the certificates", timeout: changeLimit}, dtaskv1.AuthServiceClient.TLSStatus, &dtaskv1.TLSStatusRequest{})
}

// RotateCA replaces the CA of the cluster: without finish it adds a new one, and with
// finish it drops the old one, which is refused while a coordinator or a worker lacks the
// new one. With compromised, it does both, and names those who must join again.
func (c *Client) RotateCA(ctx context.Context, finish, compromised bool) (*dtaskv1.RotateCAResponse, error) {
	return call(ctx, c, operation{name: "replacing the CA", timeout: rotateLimit}, dtaskv1.AuthServiceClient.RotateCA,
		&dtaskv1.RotateCARequest{Finish: finish, Compromised: compromised})
}

// RotateWorkerKey replaces the key of a worker: called over a connection with the old key,
// it adds the key with a hash; called with that key, it drops the old one.
func (c *Client) RotateWorkerKey(ctx context.Context, hash [32]byte) error {
	_, err := call(ctx, c, operation{name: "replacing the key", timeout: changeLimit}, dtaskv1.AuthServiceClient.RotateKey,
		&dtaskv1.RotateKeyRequest{PublicKeyHash: hash[:]})
	return err
}
