package worker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
)

// membershipFile has what a worker keeps of the cluster that it has joined. It has no
// secret: the worker's key is in a file of its own.
const membershipFile = "cluster.json"

const (
	// joinTimeout is how long a worker tries to join before it logs that the cluster is out
	// of reach.
	joinTimeout = 5 * time.Second
	// joinRetryInterval is the pause before it tries again.
	joinRetryInterval = time.Second
)

// membership is what a worker keeps of the cluster that it has joined by a join string.
type membership struct {
	Cluster   string   `json:"cluster_id"`
	Identity  uint64   `json:"identity"`
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	CA        string   `json:"ca,omitempty"` // certificates in PEM
	CAKey     string   `json:"ca_key"`       // of the join string; used without CA
}

// JoinError is returned if a worker can't join a cluster: the join string is for another
// purpose or another cluster, has expired, was used up or revoked, or its cluster can't be
// trusted. The caller needs another join string; running again has the same result.
type JoinError struct{ Err error }

// Error says why, and what to do.
func (e *JoinError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *JoinError) Unwrap() error { return e.Err }

// becomeMember makes the worker a member of the cluster of its join string, unless its work
// directory has a membership already. A worker without either connects to Join in
// plaintext, or as TLS says.
func (w *Worker) becomeMember(ctx context.Context) error {
	if w.cfg.TLS != nil {
		return nil
	}
	member, err := w.dirs.membership()
	switch {
	case err != nil:
		return err
	case member == nil && w.cfg.JoinString == "":
		return w.cfg.checkAddresses()
	case member == nil:
		if member, err = w.join(ctx); err != nil {
			return err
		}
	default:
		if err := w.checkMembership(member); err != nil {
			return err
		}
	}
	return w.useMembership(member)
}

// checkMembership checks that the configuration is for the membership of the directory. A
// join string that does not work any more is ignored: the worker has its key.
func (w *Worker) checkMembership(member *membership) error {
	if w.cfg.Name != "" && w.cfg.Name != member.Name {
		return fmt.Errorf("invalid --name %q: the worker in %s joined cluster %s as %s; use that name, or another --work-dir", w.cfg.Name, w.dirs.root, member.Cluster, member.Name)
	}
	if w.cfg.JoinString == "" {
		return nil
	}
	join, err := client.ParseJoinString(w.cfg.JoinString, "worker")
	if err == nil && join.Cluster() != member.Cluster {
		return &JoinError{fmt.Errorf("this join string is for cluster %s, and the worker in %s is a member of cluster %s: use another --work-dir, or remove %s and %s there to leave that cluster",
			join.Cluster(), w.dirs.root, member.Cluster, membershipFile, tlsconf.WorkerKeyFile)}
	}
	return nil
}

// join joins the cluster of the join string, and keeps the membership. While no coordinator
// is in reach, or this machine's clock is wrong, it tries again until ctx is done.
func (w *Worker) join(ctx context.Context) (*membership, error) {
	join, err := client.ParseJoinString(w.cfg.JoinString, "worker")
	if err != nil {
		return nil, &JoinError{err}
	}
	// The key is on disk before the cluster knows it: a join that is interrupted is repeated
	// with the same one, and counts once.
	pair, err := tlsconf.OpenWorkerKey(w.dirs.root)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	hash, err := keyHash(pair)
	if err != nil {
		return nil, err
	}
	for {
		got, err := client.Join(ctx, client.Config{UserAgent: "dtask-worker", Timeout: joinTimeout, Dial: w.joinDial()}, client.JoinOptions{
			String: join, Name: w.name, KeyHash: hash, Replace: w.cfg.Replace,
		})
		switch {
		case err == nil:
			return w.keepJoined(got)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, client.ErrConflict) && w.cfg.Name == "" && !w.cfg.Replace:
			// Another machine joined under the name of this host.
			if err := w.rename(&NameInUseError{Name: w.name}); err != nil {
				return nil, err
			}
			continue
		case errors.Is(err, client.ErrConflict):
			return nil, &JoinError{fmt.Errorf("%w: choose another --name, or use --replace if this machine is that worker and has lost its key", err)}
		case errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrBusy), errors.Is(err, client.ErrClock):
			// A machine without a battery for its clock gets the time from the network.
			w.log.WarnContext(ctx, "cluster not joined yet", "err", err, "retry_after", joinRetryInterval)
		default:
			return nil, &JoinError{err}
		}
		select {
		case <-time.After(joinRetryInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// joinDial returns the dialer of WithDialer; nil if the worker uses its own.
func (w *Worker) joinDial() dialer {
	if w.ownDial {
		return nil
	}
	return w.dial
}

// keepJoined keeps what the cluster has answered.
func (w *Worker) keepJoined(got *client.Joined) (*membership, error) {
	member := &membership{
		Cluster: got.Cluster, Identity: got.Identity.GetId(), Name: got.Identity.GetName(), Addresses: got.Addresses, CA: got.CA, CAKey: got.CAKey,
	}
	if err := member.check(); err != nil {
		return nil, &JoinError{fmt.Errorf("joining cluster %s: %w", got.Cluster, err)}
	}
	if err := w.dirs.keepMembership(member); err != nil {
		return nil, err
	}
	w.log.Info("joined the cluster", "cluster", member.Cluster, "name", member.Name, "identity", member.Identity)
	return member, nil
}

// useMembership makes all connections those of the member: with its key, to coordinators
// of its cluster only.
func (w *Worker) useMembership(member *membership) error {
	pair, err := tlsconf.OpenWorkerKey(w.dirs.root)
	if err != nil {
		return err //nolint:wrapcheck // names the file
	}
	trust, err := member.trust()
	if err != nil {
		return fmt.Errorf("reading the membership in %s: %w", w.dirs.root, err)
	}
	w.trust.Store(&trust)
	w.key.Store(&pair)
	w.secureConnections()
	for _, addr := range member.Addresses {
		if !slices.Contains(w.cfg.Join, addr) {
			w.cfg.Join = append(slices.Clip(w.cfg.Join), addr)
		}
	}
	if w.ownDial {
		w.dial = dialTCP
	}
	w.member, w.name = member, member.Name
	w.fence.expect(member.Cluster)
	return nil
}

// check returns an error unless the membership can be used.
func (m *membership) check() error {
	_, err := m.trust()
	switch {
	case !isName(m.Name):
		return fmt.Errorf("invalid name %q of the worker", m.Name)
	case m.Cluster == "" || len(m.Addresses) == 0:
		return errors.New("missing cluster or addresses")
	}
	return err
}

// trust returns whom the member trusts.
func (m *membership) trust() (trust tlsconf.Trust, err error) {
	if trust.Roots, err = tlsconf.DecodeRoots(m.CA); err != nil || len(trust.Roots) > 0 {
		return trust, err //nolint:wrapcheck // the caller names the file
	}
	key, err := tlsconf.ParseKeyHash(m.CAKey)
	return tlsconf.Trust{Keys: [][32]byte{key}}, err //nolint:wrapcheck // the caller names the file
}

// keyHash returns the hash by which the cluster knows a key.
func keyHash(pair tls.Certificate) ([32]byte, error) {
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return [32]byte{}, fmt.Errorf("reading the worker's key: %w", err)
	}
	return tlsconf.KeyHash(cert), nil
}

// membership returns the membership that the directory keeps; nil if it has none.
func (d *dirs) membership() (*membership, error) {
	path := filepath.Join(d.root, membershipFile)
	text, err := os.ReadFile(path) //nolint:gosec // the worker's own file
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no membership
	}
	member := new(membership)
	if err == nil {
		err = json.Unmarshal(text, member)
	}
	if err == nil {
		err = member.check()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the membership: %s: %w; remove the file to join again", path, err)
	}
	return member, nil
}

// keepMembership stores the membership, which a crash leaves whole or missing.
func (d *dirs) keepMembership(member *membership) error {
	text, err := json.MarshalIndent(member, "", "  ")
	if err != nil {
		return fmt.Errorf("storing the membership: %w", err)
	}
	path := filepath.Join(d.root, membershipFile)
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the worker's own file
	if err != nil {
		return fmt.Errorf("storing the membership: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("storing the membership: %w", err)
	}
	return nil
}

// mayBeMember reports whether a work directory that the worker may use has a membership.
func (c *Config) mayBeMember() bool {
	pattern := filepath.Join(c.WorkDir, membershipFile)
	if c.WorkDir == "" {
		base, err := defaultWorkDir("")
		if err != nil {
			return false
		}
		pattern = filepath.Join(base, "*", membershipFile)
	}
	found, err := filepath.Glob(pattern)
	return err == nil && len(found) > 0
}

// checkAddresses returns all errors of a worker that has neither a membership nor a join
// string.
func (c *Config) checkAddresses() error {
	if len(c.Join) == 0 {
		return errors.New("missing --join: a join string or at least one HOST:PORT is required")
	}
	return nil
}
