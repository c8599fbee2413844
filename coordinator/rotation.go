package coordinator

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/dtask/dtask/coordinator/access"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// trustInterval is how often a replica compares its CAs with those of the log; a change
	// of the log wakes it earlier.
	trustInterval = time.Second
	// reconnectPace is the time per worker in which workers connect again while the CA is being
	// replaced, which costs about 1 ms of a processor, and maxReconnectTime the most for all. A
	// CA without a cross-certificate replaces one whose key is known to others.
	reconnectPace    = 50 * time.Millisecond
	maxReconnectTime = time.Minute
	// caKeyTimeout is how long another replica may take to send the key of a CA.
	caKeyTimeout = 2 * time.Second
)

// caRotation implements access.Rotation.
type caRotation struct{ *replica }

// CA implements access.Rotation.
func (r caRotation) CA() (*tlsconf.CA, error) {
	if !tlsconf.HasCAKey(r.cfg.TLSDir) {
		return nil, &access.RefusedError{Reason: fmt.Sprintf("the key of the cluster's CA is not on coordinator %s (%s): make the new CA where the key is, "+
			"and replace the files of all coordinators (docs/operations.md, \"CA with an offline key\")", r.dir.serverID, filepath.Join(r.cfg.TLSDir, tlsconf.CAKeyFile))}
	}
	return tlsconf.LoadCA(r.cfg.TLSDir)
}

// SaveNext implements access.Rotation.
func (r caRotation) SaveNext(ca *tlsconf.CA) error {
	r.security.files.Lock()
	defer r.security.files.Unlock()
	return ca.SaveNext(r.cfg.TLSDir)
}

// CAKey implements access.Rotation.
func (r caRotation) CAKey(hash [32]byte) ([]byte, error) {
	bundle, err := r.trusted()
	if err != nil {
		return nil, err
	}
	r.security.files.Lock()
	defer r.security.files.Unlock()
	ca, err := tlsconf.FindCA(r.cfg.TLSDir, bundle, hash)
	if err != nil {
		return nil, err
	}
	return ca.KeyDER()
}

// Replicas implements access.Rotation.
func (r caRotation) Replicas(ctx context.Context) (list []access.ReplicaCertificate) {
	for _, m := range r.members.Certificates(ctx) {
		list = append(list, access.ReplicaCertificate{ServerID: m.ServerID, Address: m.Address, Own: m.Own})
	}
	return list
}

// Workers implements access.Rotation.
func (r caRotation) Workers(trust [32]byte) (connected int, lacking []string) {
	return r.sessions.Lacking(trust[:])
}

// trusted returns the certificates of CAs that the log has; none before the CA was replaced
// for the first time: the files of each replica decide until then.
func (r *replica) trusted() ([]*x509.Certificate, error) {
	var ders [][]byte
	r.machine.Read(func(st *fsm.State, _ uint64) { ders = st.Trust() })
	return tlsconf.ParseBundle(ders)
}

// followTrust makes the files of this replica those that the log asks for, and gives the
// CAs to the workers, until ctx is done.
func (r *replica) followTrust(ctx context.Context) {
	if r.security == nil {
		return
	}
	watch := r.machine.WatchIdentities()
	defer watch.Close()
	tick := time.NewTicker(r.cfg.TimeScale.Scale(trustInterval))
	defer tick.Stop()
	var failed string
	var checked *tlsconf.Replica
	for {
		err := r.adoptTrust(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != failed {
			r.log.ErrorContext(ctx, "CAs of the cluster not adopted; trying again", "err", err)
		}
		failed = fmt.Sprint(err)
		checked = r.closeUntrusted(ctx, checked)
		r.offerTrust()
		r.security.wakeRenewal()
		select {
		case <-ctx.Done():
			return
		case <-watch.Changed:
		case <-tick.C:
		}
	}
}

// closeUntrusted ends the connections with replicas whose certificates are of a dropped CA, if
// the files have changed since it returned before. The replicas connect again at once with
// the certificates that they have now. A call on such a connection would be refused. Usually
// few are left: see renewLinks.
func (r *replica) closeUntrusted(ctx context.Context, before *tlsconf.Replica) *tlsconf.Replica {
	now := r.security.watcher.Current()
	if now == before {
		return now
	}
	if n := r.mux.CloseUntrusted() + r.peerCreds.CloseUntrusted(); n > 0 {
		r.log.InfoContext(ctx, "closed connections with certificates of a dropped CA", "connections", n)
	}
	return now
}

// adoptTrust writes the CAs of the log to the files, and renews the certificate if it is
// from another CA than the first one. The files of a replica without the key of the CA are
// the operator's.
func (r *replica) adoptTrust(ctx context.Context) error {
	bundle, err := r.trusted()
	if err != nil || len(bundle) == 0 || !tlsconf.HasCAKey(r.cfg.TLSDir) {
		return err
	}
	current := r.security.watcher.Current()
	if current.Adopted(bundle) {
		return nil
	}
	ca, err := tlsconf.FindCA(r.cfg.TLSDir, bundle, tlsconf.KeyHash(bundle[0]))
	if errors.Is(err, fs.ErrNotExist) {
		ca, err = r.fetchCA(ctx, bundle)
	}
	if err != nil {
		return err
	}
	r.security.files.Lock()
	err = current.Adopt(r.cfg.TLSDir, ca, r.clusterClock.now())
	r.security.files.Unlock()
	if err != nil {
		return err
	}
	r.security.watcher.Check()
	r.log.InfoContext(ctx, "CAs of the cluster adopted", "cas", len(tlsconf.Anchors(bundle)), "expires", r.security.watcher.Current().Cert.NotAfter)
	return nil
}

// fetchCA gets the key of the first CA from another replica.
func (r *replica) fetchCA(ctx context.Context, bundle []*x509.Certificate) (*tlsconf.CA, error) {
	hash := tlsconf.KeyHash(bundle[0])
	errs := []error{errors.New("no other coordinator has the key of the new CA")}
	for _, s := range r.servers() {
		if s.ID == r.dir.serverID {
			continue
		}
		key, err := r.fetchKey(ctx, s.Address, hash)
		if err == nil {
			return tlsconf.ParseCA(bundle, key)
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.ID, err))
	}
	return nil, errors.Join(errs...)
}

func (r *replica) fetchKey(ctx context.Context, address string, hash [32]byte) ([]byte, error) {
	conn, err := r.peers.Conn(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.TimeScale.Scale(caKeyTimeout))
	defer cancel()
	got, err := dtaskv1.NewAuthServiceClient(conn).GetCAKey(ctx, &dtaskv1.GetCAKeyRequest{KeyHash: hash[:]})
	return got.GetKey(), err
}

// offerTrust gives the CAs that this replica uses, and the addresses of the cluster, to the
// workers that are connected to it, and names the CAs to clients.
func (r *replica) offerTrust() {
	current := r.security.watcher.Current()
	trust := &dtaskv1.Trust{Roots: tlsconf.BundleDER(current.Roots)}
	for _, s := range r.servers() {
		trust.Addresses = append(trust.Addresses, s.Address)
	}
	hash := tlsconf.BundleHash(current.Roots)
	if current.IsReplacing() && len(current.Bundle) > len(current.Roots) { // not in haste: see reconnectPace
		connected, _ := r.sessions.Lacking(hash[:])
		trust.ReconnectWithinMs = min(time.Duration(connected)*reconnectPace, maxReconnectTime).Milliseconds()
	}
	r.sessions.OfferTrust(trust, hash[:])
	name := hex.EncodeToString(hash[:])[:trustDigits]
	r.trustName.Store(&name)
}

// trustDigits is how much of the hash of the CAs responses have.
const trustDigits = 16

// trust names the CAs that this replica uses, for clients; empty until it offers them.
func (r *replica) trust() string {
	if name := r.trustName.Load(); name != nil {
		return *name
	}
	return ""
}
