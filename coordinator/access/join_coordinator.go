package access

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// coordinatorName stands for the name of a coordinator until the cluster has chosen one.
const coordinatorName = "coordinator"

// maxServers bounds how many names are tried for a coordinator.
const maxServers = 10_000

// joinCoordinator gives a coordinator a server id, a certificate, and the key of the CA:
// a coordinator that can write the log could do what that key can. The connection proves that the
// caller has the key that the certificate is for, and encrypts the answer to it.
//
// The caller is not a member yet: it starts with its certificate and asks to be added.
func (s *Service) joinCoordinator(ctx context.Context, recorder Recorder, op sequencer.Join, r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
	key, err := x509.ParsePKIXPublicKey(r.GetPublicKey())
	if err != nil || !presents(ctx, r.GetPublicKey()) {
		return nil, invalid("invalid public_key: must be the key of the connection's certificate")
	}
	// Before the use of the string is counted, and once only: a repeated call with the same
	// key has its answer, also after the exchange.
	if replace := r.GetReplaceServer(); replace != "" && s.madeBefore(op) == "" {
		if err := s.cfg.CheckReplace(ctx, replace); err != nil {
			return nil, err
		}
	}
	resp, err := s.nameCoordinator(ctx, recorder, op)
	if err != nil {
		return nil, err
	}
	id := resp.GetIdentity().GetName()
	issued, err := s.cfg.Issue(id, r.GetHosts(), key)
	if err != nil {
		return nil, err
	}
	if err := recorder.PinReplica(ctx, id, op.Credential.Hash); err != nil {
		return nil, fmt.Errorf("recording the key of %s: %w", id, err)
	}
	resp.Certificate, resp.CaKey, resp.Replaces = issued.Certificate, issued.CAKey, r.GetReplaceServer()
	for _, m := range s.cfg.Members() {
		resp.Members = append(resp.Members, &dtaskv1.JoinMember{ServerId: m.ServerID, Address: m.Address})
	}
	return resp, nil
}

// presents reports whether a connection's certificate has a public key.
func presents(ctx context.Context, key []byte) bool {
	info, ok := connectionOf(ctx).(credentials.TLSInfo)
	return ok && len(info.State.PeerCertificates) > 0 && bytes.Equal(info.State.PeerCertificates[0].RawSubjectPublicKeyInfo, key)
}

// nameCoordinator makes the identity of a coordinator under the first free server id, or
// returns the one that an earlier call with the same key made.
func (s *Service) nameCoordinator(ctx context.Context, recorder Recorder, op sequencer.Join) (*dtaskv1.JoinResponse, error) {
	for n := 1; n <= maxServers; n++ {
		op.Name = fmt.Sprintf("n%d", n)
		if made := s.madeBefore(op); made != "" {
			op.Name = made
		} else if s.isUsed(op.Name) {
			continue
		}
		resp, err := s.redeem(ctx, recorder, op)
		if _, taken := errors.AsType[*ConflictError](err); taken && s.isUsed(op.Name) {
			continue // by another one that joins now
		}
		return resp, err
	}
	return nil, &RefusedError{Reason: "the cluster has too many names of coordinators in use"}
}

// madeBefore returns the name of the identity that a request made before; empty if none.
func (s *Service) madeBefore(op sequencer.Join) (name string) {
	s.read(func(st *fsm.State) {
		if i := st.IdentityByKey(op.Token, op.Key); i != nil {
			name = i.Name
		}
	})
	return name
}

// isUsed reports whether a server id belongs, or belonged, to a coordinator.
func (s *Service) isUsed(id string) (used bool) {
	s.read(func(st *fsm.State) {
		_, recorded := st.Replica(id)
		used = recorded || st.IdentityByName(id, false) != nil || len(st.ReplicaKeys(id)) > 0
	})
	return used || slices.ContainsFunc(s.cfg.Members(), func(m Member) bool { return m.ServerID == id || tlsconf.Covers(id, m.ServerID) })
}
