package access

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Rotation is what a Service needs of its replica to replace the CA.
type Rotation interface {
	// CA returns the CA whose key this replica has. The error is a *RefusedError if it has
	// none.
	CA() (*tlsconf.CA, error)
	// SaveNext keeps the key of a CA that the log does not have yet.
	SaveNext(*tlsconf.CA) error
	// CAKey returns the key of a CA by the hash of its public key, in PKCS #8. The error
	// wraps fs.ErrNotExist if this replica does not have it.
	CAKey(hash [32]byte) ([]byte, error)
	// Replicas asks all members of the cluster for their certificates.
	Replicas(ctx context.Context) []ReplicaCertificate
	// Workers returns how many workers are connected, and the names of those that have not
	// stored the CAs with a hash (tlsconf.BundleHash).
	Workers(trust [32]byte) (connected int, lacking []string)
}

// ReplicaCertificate is what a member of the cluster says of its certificate; Own is nil
// if it does not answer.
type ReplicaCertificate struct {
	ServerID, Address string
	Own               *dtaskv1.OwnCertificate
}

const (
	// adoptTimeout is how long a rotation waits for replicas and workers to use a new CA.
	adoptTimeout = 5 * time.Second
	adoptPoll    = 50 * time.Millisecond
	// finishAfter is how long the old CA is trusted if nobody drops it.
	finishAfter = 30 * 24 * time.Hour
	// maxLacking bounds the names in a status.
	maxLacking = 1000
)

// bundle returns the certificates of CAs that the log has, or those of this replica's
// files if the CA was never replaced, and since when.
func (s *Service) bundle() (certs []*x509.Certificate, sinceMS int64, err error) {
	var ders [][]byte
	s.read(func(st *fsm.State) { ders, sinceMS = st.Trust(), st.TrustMS() })
	if len(ders) == 0 {
		return s.cfg.Registry.cfg.Replica().Bundle, 0, nil
	}
	certs, err = tlsconf.ParseBundle(ders)
	return certs, sinceMS, err //nolint:wrapcheck // says what is invalid
}

// TLSStatus implements AuthService.
func (s *Service) TLSStatus(ctx context.Context, _ *dtaskv1.TLSStatusRequest) (*dtaskv1.TLSStatusResponse, error) {
	if _, err := s.recorder(); err != nil {
		return nil, err
	}
	if err := s.cfg.Confirm(ctx); err != nil {
		return nil, err
	}
	resp, _, err := s.tlsStatus(ctx)
	return resp, err
}

func (s *Service) tlsStatus(ctx context.Context) (*dtaskv1.TLSStatusResponse, []*x509.Certificate, error) {
	bundle, since, err := s.bundle()
	if err != nil {
		return nil, nil, err
	}
	resp := new(dtaskv1.TLSStatusResponse)
	for _, ca := range tlsconf.Anchors(bundle) {
		key := tlsconf.KeyHash(ca)
		resp.Cas = append(resp.Cas, &dtaskv1.CertificateAuthority{KeyHash: key[:], ExpiresAt: ca.NotAfter.UnixMilli(), Certificate: ca.Raw})
	}
	if len(resp.GetCas()) > 1 {
		resp.RotatingSince = since
	}
	trust := tlsconf.BundleHash(bundle)
	for _, r := range s.cfg.Rotation.Replicas(ctx) {
		own := r.Own
		resp.Replicas = append(resp.Replicas, &dtaskv1.ReplicaCertificate{
			ServerId: r.ServerID, Address: r.Address, Reachable: own != nil,
			CaKeyHash: own.GetCaKeyHash(), ExpiresAt: own.GetExpiresAt(), HasCaKey: own.GetHasCaKey(),
			Current: bytes.Equal(own.GetTrust(), trust[:]) && bytes.Equal(own.GetCaKeyHash(), resp.GetCas()[0].GetKeyHash()),
		})
	}
	connected, lacking := s.cfg.Rotation.Workers(trust)
	slices.Sort(lacking)
	resp.Workers, resp.WorkersLacking = uint32(connected), lacking[:min(len(lacking), maxLacking)] //nolint:gosec // far below
	return resp, bundle, nil
}

// RotateCA implements AuthService.
func (s *Service) RotateCA(ctx context.Context, r *dtaskv1.RotateCARequest) (*dtaskv1.RotateCAResponse, error) {
	recorder, err := s.timedRecorder()
	if err != nil {
		return nil, err
	}
	if r.GetFinish() && r.GetCompromised() {
		return nil, invalid("finish and compromised are mutually exclusive")
	}
	if err := s.cfg.Confirm(ctx); err != nil {
		return nil, err
	}
	s.rotating.Lock()
	defer s.rotating.Unlock()
	resp := new(dtaskv1.RotateCAResponse)
	if r.GetFinish() {
		resp.Already, err = s.finishRotation(ctx, recorder, false)
	} else {
		resp.Already, err = s.beginRotation(ctx, recorder, r.GetCompromised())
	}
	if err != nil {
		return nil, err
	}
	if resp.Status, err = s.awaitAdoption(ctx, r.GetCompromised()); err != nil || !r.GetCompromised() {
		return resp, err
	}
	resp.MustJoin = s.mustJoin(resp.GetStatus())
	if _, err := s.finishRotation(ctx, recorder, true); err != nil {
		return nil, err
	}
	resp.Already = false
	resp.Status, err = s.awaitAdoption(ctx, false)
	return resp, err
}

// FinishOverdue drops the old CA if the CA has been replaced for 30 days and nobody lacks the
// new one. It does nothing on a replica that does not lead.
func (s *Service) FinishOverdue(ctx context.Context) error {
	recorder := s.cfg.Recorder()
	if s.cfg.Rotation == nil || recorder == nil {
		return nil
	}
	bundle, since, err := s.bundle()
	if err != nil || len(tlsconf.Anchors(bundle)) < 2 || since == 0 || !s.cfg.Registry.cfg.TimeKnown() || s.now()-since < finishAfter.Milliseconds() {
		return err
	}
	s.rotating.Lock()
	defer s.rotating.Unlock()
	_, err = s.finishRotation(ctx, recorder, false)
	return err
}

// beginRotation makes a CA and adds it to those that the cluster trusts. It changes nothing
// while the CA is being replaced already. A new CA that is not trusted by those who know
// only the old one has no cross-certificate.
func (s *Service) beginRotation(ctx context.Context, recorder Recorder, compromised bool) (already bool, err error) {
	old, err := s.cfg.Rotation.CA()
	if err != nil {
		return false, err
	}
	status, bundle, err := s.tlsStatus(ctx)
	if err != nil {
		return false, err
	}
	for _, replica := range status.GetReplicas() {
		if replica.GetReachable() && !replica.GetHasCaKey() {
			return false, &RefusedError{Reason: fmt.Sprintf("coordinator %s does not have the key of the CA, so that it can't renew its certificate: "+
				"replace its files yourself (docs/operations.md, \"CA with an offline key\"), or let it join again with a join string", replica.GetServerId())}
		}
	}
	if len(status.GetCas()) > 1 && s.isUsable(status) {
		return true, nil
	}
	id, err := old.ClusterID()
	if err != nil {
		return false, &RefusedError{Reason: err.Error() + ": replace the files of all coordinators (docs/operations.md, \"CA with an offline key\")"}
	}
	now := s.cfg.Registry.cfg.Now()
	next, err := tlsconf.NewCA(id, now)
	if err != nil {
		return false, err
	}
	roots := []*x509.Certificate{next.Cert}
	if !compromised {
		cross, err := old.CrossSign(next, now)
		if err != nil {
			return false, err
		}
		roots = append(roots, cross)
	}
	// The key is on disk before the log names the CA.
	if err := s.cfg.Rotation.SaveNext(next); err != nil {
		return false, err
	}
	s.cfg.Logger.WarnContext(ctx, "replacing the CA", "by", callerName(ctx), "compromised", compromised)
	return false, s.setTrust(ctx, recorder, bundle, append(roots, old.Cert))
}

// isUsable reports whether a replica has the key of the first CA, or used it. Another one
// is made if a coordinator was lost before it could give the key to others.
func (s *Service) isUsable(status *dtaskv1.TLSStatusResponse) bool {
	first := status.GetCas()[0].GetKeyHash()
	if _, err := s.cfg.Rotation.CAKey(hash(first)); err == nil {
		return true
	}
	return slices.ContainsFunc(status.GetReplicas(), func(r *dtaskv1.ReplicaCertificate) bool { return bytes.Equal(r.GetCaKeyHash(), first) })
}

// setTrust replaces the CAs that the cluster trusts.
func (s *Service) setTrust(ctx context.Context, recorder Recorder, before, after []*x509.Certificate) error {
	old, changed := tlsconf.BundleDER(before), false
	err := recorder.SetTrust(ctx, func(roots [][]byte) [][]byte {
		if len(roots) > 0 && !slices.EqualFunc(roots, old, bytes.Equal) {
			changed = true
			return nil
		}
		return tlsconf.BundleDER(after)
	})
	if err == nil && changed {
		return &RefusedError{Reason: "the CAs of the cluster changed meanwhile: see dtaskctl tls status"}
	}
	return err
}

// awaitAdoption waits until all replicas that answer use the first CA, and with workers
// also until all connected workers have stored it, but not longer than adoptTimeout. It
// returns the status.
func (s *Service) awaitAdoption(ctx context.Context, workers bool) (*dtaskv1.TLSStatusResponse, error) {
	limit := time.NewTimer(adoptTimeout)
	defer limit.Stop()
	poll := time.NewTicker(adoptPoll)
	defer poll.Stop()
	for {
		status, _, err := s.tlsStatus(ctx)
		waits := slices.ContainsFunc(status.GetReplicas(), func(r *dtaskv1.ReplicaCertificate) bool { return r.GetReachable() && !r.GetCurrent() }) ||
			workers && len(status.GetWorkersLacking()) > 0
		if err != nil || !waits {
			return status, err
		}
		select {
		case <-limit.C:
			return status, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-poll.C:
		}
	}
}

// finishRotation drops all CAs but the first one. It refuses if that would lock a replica
// or a worker out, unless the old CA is compromised.
func (s *Service) finishRotation(ctx context.Context, recorder Recorder, compromised bool) (already bool, err error) {
	status, bundle, err := s.tlsStatus(ctx)
	if err != nil {
		return false, err
	}
	if len(status.GetCas()) < 2 {
		return true, nil
	}
	if names := lacking(status); len(names) > 0 && !compromised {
		return false, &RefusedError{Reason: fmt.Sprintf("%d coordinators and workers lack the new CA, and would be locked out: %s: wait, start or remove them (dtaskctl tls status shows them)",
			len(names), shorten(names))}
	}
	after := bundle[:1]
	for _, cert := range bundle[1:] {
		if !compromised && tlsconf.KeyHash(cert) == tlsconf.KeyHash(bundle[0]) {
			after = append(slices.Clip(after), cert) // those who were away since still verify
		}
	}
	s.cfg.Logger.WarnContext(ctx, "dropping the old CA", "by", callerName(ctx), "compromised", compromised)
	return false, s.setTrust(ctx, recorder, bundle, after)
}

// lacking names the replicas that don't use the first CA, and the connected workers that
// don't trust it.
func lacking(status *dtaskv1.TLSStatusResponse) (names []string) {
	for _, r := range status.GetReplicas() {
		switch {
		case !r.GetReachable():
			names = append(names, "replica "+r.GetServerId()+" (does not answer)")
		case !r.GetCurrent():
			names = append(names, "replica "+r.GetServerId())
		}
	}
	for _, name := range status.GetWorkersLacking() {
		names = append(names, "worker "+name)
	}
	return names
}

// mustJoin names those who can't connect after the old CA is dropped: they join again, or
// log in again.
func (s *Service) mustJoin(status *dtaskv1.TLSStatusResponse) []string {
	names := lacking(status)
	connected := make(map[string]bool)
	for _, name := range s.connectedWorkers() {
		connected[name] = true
	}
	now := s.now()
	s.read(func(st *fsm.State) {
		for i := range st.IdentitiesAfter(0) {
			switch {
			case !i.IsLive(now) || i.Role == fsm.RoleReplica:
			case i.Role != fsm.RoleWorker:
				names = append(names, fmt.Sprintf("%s %s", auth.Role(i.Role), i.Name))
			case !connected[i.Name]:
				names = append(names, "worker "+i.Name)
			}
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// connectedWorkers returns the names of all workers that are connected.
func (s *Service) connectedWorkers() []string {
	_, all := s.cfg.Rotation.Workers([32]byte{})
	return all
}

// shorten joins names, and leaves some out if there are many.
func shorten(names []string) string {
	const most = 10
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// GetCAKey implements AuthService. Only replicas may call it, over mutual TLS.
func (s *Service) GetCAKey(ctx context.Context, r *dtaskv1.GetCAKeyRequest) (*dtaskv1.GetCAKeyResponse, error) {
	if s.cfg.Registry.cfg.Replica == nil {
		return nil, errOpen
	}
	if len(r.GetKeyHash()) != hashBytes {
		return nil, invalid("invalid hash of %d bytes: must be a SHA-256", len(r.GetKeyHash()))
	}
	key, err := s.cfg.Rotation.CAKey(hash(r.GetKeyHash()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFoundError{Reason: "this coordinator does not have that key of a CA"}
	}
	if err != nil {
		return nil, err
	}
	s.cfg.Logger.InfoContext(ctx, "gave the key of the CA to a coordinator", "server_id", callerName(ctx))
	return &dtaskv1.GetCAKeyResponse{Key: key}, nil
}
