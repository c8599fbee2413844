package coordinator

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/coordinator/access"
	"github.com/dtask/dtask/coordinator/api"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/loopback"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// isolation is how long a replica without contact to a leader still decides about callers
// by its own copy of the identities.
const isolation = 30 * time.Second

// Socket is the path of the Unix socket for local administration. It exists with TLSDir
// only: without, everyone on this machine may do everything.
func (c *Config) Socket() string { return filepath.Join(c.DataDir, "dtaskd.sock") }

// newRegistry makes the registry of callers.
func (r *replica) newRegistry() *access.Registry {
	cfg := access.Config{
		Machine: r.machine, Now: r.clusterClock.now, TimeKnown: r.clusterClock.known, Logger: r.log,
		Leads:    func() bool { return r.leadership.term.Load() != nil },
		Isolated: r.isolated, Removed: r.removed, Denied: r.denyHTTP,
	}
	if r.security != nil {
		cfg.Replica = r.security.watcher.Current
	}
	return access.New(cfg)
}

// removed reports whether a replica was recorded, and is no member any more. The
// certificate of n2 is also that of n2-1, which has taken its place.
func (r *replica) removed(serverID string) bool {
	members := r.servers()
	if len(members) == 0 || slices.ContainsFunc(members, func(s raftnode.Server) bool { return tlsconf.Covers(serverID, s.ID) }) {
		return false
	}
	recorded := false
	r.machine.Read(func(st *fsm.State, _ uint64) { _, recorded = st.Replica(serverID) })
	return recorded
}

// isolated reports whether this replica does not lead and has not heard of a leader for a
// long time: since it started, if it never has. A replica that loses its leader soon stands
// for election, so that it is a candidate, and not a follower, most of that time.
func (r *replica) isolated() bool {
	node := r.node.Load()
	return node != nil && isIsolated(node.State(), r.started, node.LastContact(), r.cfg.TimeScale.Scale(isolation))
}

// isIsolated is isolated for a replica with a state of Raft, which has started and heard of a
// leader at these times, the latter zero if never.
func isIsolated(state string, started, contact time.Time, after time.Duration) bool {
	if contact.Before(started) {
		contact = started
	}
	return state != "leader" && time.Since(contact) > after
}

// newAuthService makes the service that gives and takes access.
func (r *replica) newAuthService() *access.Service {
	var rotation access.Rotation
	if r.security != nil {
		rotation = caRotation{r}
	}
	return access.NewService(access.ServiceConfig{
		Rotation: rotation, Registry: r.access, Logger: r.log, Confirm: r.api.Confirm, ClusterID: r.clusterID,
		Recorder: func() access.Recorder { return orNil[access.Recorder](r.leadership.term.Load()) },
		Members: func() []access.Member {
			var list []access.Member
			for _, s := range r.servers() {
				list = append(list, access.Member{ServerID: s.ID, Address: s.Address})
			}
			return list
		},
		CheckIssue: r.checkIssue, Issue: r.issue, CheckReplace: func(ctx context.Context, serverID string) error { return r.members.CheckReplace(ctx, serverID) },
	})
}

// checkIssue returns an error if this replica can't issue certificates.
func (r *replica) checkIssue() error {
	if tlsconf.HasCAKey(r.cfg.TLSDir) {
		return nil
	}
	return &access.RefusedError{Reason: fmt.Sprintf("coordinators can't join by a join string: the key of the cluster's CA is not on the leader %s (%s); "+
		"if another coordinator has it, run dtaskctl cluster transfer-leader ID; else create the certificate where the key is, with dtaskctl tls issue --replica ID, "+
		"start dtaskd with --tls-dir, and run dtaskctl cluster add", r.dir.serverID, filepath.Join(r.cfg.TLSDir, tlsconf.CAKeyFile))}
}

// issue issues a certificate for a coordinator that joins.
func (r *replica) issue(serverID string, hosts []string, key crypto.PublicKey) (access.Issued, error) {
	if err := r.checkIssue(); err != nil {
		return access.Issued{}, err
	}
	ca, err := tlsconf.LoadCA(r.cfg.TLSDir)
	if err != nil {
		return access.Issued{}, err
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: serverID, Hosts: hosts, Key: key, ClusterID: r.security.watcher.Current().ClusterID}, r.clusterClock.now())
	if err != nil {
		return access.Issued{}, err
	}
	der, err := ca.KeyDER()
	return access.Issued{Certificate: cert.Raw, CAKey: der}, err
}

// workerGrant returns what a worker may do: what the identity of its key allows, if its
// name is that identity's.
func workerGrant(ctx context.Context, h *dtaskv1.Hello) (session.Grant, error) {
	p := auth.FromContext(ctx)
	if p == nil || p.Via == auth.ViaOpen {
		return session.Grant{AnyLabels: true, Namespaces: []string{auth.AllNamespaces}}, nil
	}
	if p.Name != h.GetName() {
		return session.Grant{}, &api.Error{Kind: api.KindDenied, Message: fmt.Sprintf("worker name %q refused: the key of this worker belongs to %q; leave --name out, or join again with a join string under the other name", h.GetName(), p.Name)}
	}
	return session.Grant{Labels: p.Labels, Namespaces: p.Namespaces}, nil
}

// serveSocket serves administrators on this machine. A replica that can't open its socket
// serves everyone else.
func (r *replica) serveSocket(ctx context.Context, group *errgroup.Group) {
	if r.security == nil {
		return
	}
	l, err := r.cfg.Seams.Socket(ctx, r.cfg.Socket())
	if err != nil {
		r.log.WarnContext(ctx, "no administration over a socket of this machine", "err", err)
		return
	}
	group.Go(func() error { return r.api.ServeAlso(ctx, access.LocalConns(l)) })
}

// guardHTTP lets only holders of a token read metrics, if other machines can reach the
// port.
func (r *replica) guardHTTP(next http.Handler) http.Handler {
	if r.security == nil || loopback.Is(r.cfg.HTTP) {
		return next
	}
	return r.access.GuardHTTP(next)
}

// serverCredentials are the credentials of all connections to the gRPC server.
func serverCredentials() *access.SocketCredentials {
	return access.WithSocket(transport.ServerCredentials())
}

// classifyAccess returns what the errors of package access mean to a caller; nil for
// others.
func classifyAccess(err error) *api.Error {
	var (
		unauthenticated *access.UnauthenticatedError
		invalid         *access.InvalidError
		refused         *access.RefusedError
		conflict        *access.ConflictError
		join            *access.JoinError
		unknown         *access.NotFoundError
		busy            *access.BusyError
	)
	switch {
	case errors.As(err, &unauthenticated):
		return &api.Error{Kind: api.KindUnauthenticated, Message: unauthenticated.Reason}
	case errors.Is(err, access.ErrAskLeader):
		return &api.Error{Kind: api.KindNotLeader, Message: err.Error()}
	case errors.As(err, &invalid):
		return &api.Error{Kind: api.KindInvalid, Message: "invalid request", Faults: []string{invalid.Reason}}
	case errors.As(err, &refused):
		return &api.Error{Kind: api.KindRefused, Message: refused.Reason}
	case errors.As(err, &conflict):
		return &api.Error{Kind: api.KindEnded, Message: conflict.Reason}
	case errors.As(err, &join):
		return &api.Error{Kind: api.KindDenied, Message: join.Reason}
	case errors.As(err, &unknown):
		return &api.Error{Kind: api.KindNotFound, Message: unknown.Reason}
	case errors.As(err, &busy):
		return &api.Error{Kind: api.KindBusy, Message: busy.Error(), RetryAfter: busy.RetryAfter}
	}
	return nil
}
