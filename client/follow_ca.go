package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/tlsconf"
)

// trustKey is the metadata key under which a response names the CAs that the coordinator
// trusts: the begin of their hash. Package api has the same.
const trustKey = "dtask-trust"

// trustDigits is the length of what a response has under trustKey.
const trustDigits = 16

const (
	// learnTimeout bounds the handshake by which a client learns other CAs.
	learnTimeout = 5 * time.Second
	// learnDelay separates such handshakes, and relearnDelay those for the same CAs: a
	// coordinator that lags behind the others may have nothing to teach.
	learnDelay, relearnDelay = time.Second, time.Minute
)

// followingCredentials are TLS credentials that follow the CAs of a cluster.
type followingCredentials struct {
	credentials.TransportCredentials

	cas *clusterCAs
}

// newFollowingCredentials begins with a trust. changed is that of Trust.FollowCA.
func newFollowingCredentials(given tlsconf.Trust, changed func(ca string)) *followingCredentials {
	c := &clusterCAs{given: given, changed: changed}
	c.setTrust(given)
	c.open = tlsconf.NewOpenConns(func(state *tls.ConnectionState) bool { return c.trust.Load().Trusts(state) })
	c.config = tlsconf.FollowTrust(func() tlsconf.Trust { return c.trust.Load().Trust }, nil, nil)
	verify := c.config.VerifyConnection
	c.config.VerifyConnection = func(state tls.ConnectionState) error {
		if err := verify(state); err != nil {
			return err
		}
		c.learn(tlsconf.PresentedRoots(state.PeerCertificates))
		return nil
	}
	return &followingCredentials{c.open.Track(credentials.NewTLS(c.config)), c}
}

// forClient returns credentials for one client, which belongs to one cluster: clients of
// others may have the same credentials.
func (f *followingCredentials) forClient() *followingCredentials {
	return newFollowingCredentials(f.cas.given, f.cas.changed)
}

// clusterCAs are the CAs that a client trusts now. Safe for concurrent use.
type clusterCAs struct {
	given   tlsconf.Trust
	changed func(ca string) // nil: nobody stores them
	config  *tls.Config
	open    *tlsconf.OpenConns

	trust atomic.Pointer[namedTrust]

	mu      sync.Mutex // guards the rest, and changes of trust
	asked   string     // the CAs for which the last handshake was made
	askedAt time.Time
}

// namedTrust is whom a client trusts, and how a response names its CAs.
type namedTrust struct {
	tlsconf.Trust
	name string
}

func (c *clusterCAs) setTrust(t tlsconf.Trust) {
	hash := tlsconf.BundleHash(t.Roots)
	c.trust.Store(&namedTrust{t, hex.EncodeToString(hash[:])[:trustDigits]})
}

// learn trusts the CAs that a trusted coordinator presents in place of those before, if they
// are newer. Connections to coordinators that are not trusted any more end.
func (c *clusterCAs) learn(presented []*x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !supersedes(presented, c.trust.Load().Roots) {
		return
	}
	c.setTrust(tlsconf.Trust{Roots: presented}) // a hash of a key was that of one of them
	if c.changed != nil {
		c.changed(tlsconf.EncodeRoots(presented))
	}
	c.open.CloseUntrusted()
}

// supersedes reports whether presented CAs are those of a later step of a rotation than the
// trusted ones: it adds a newer CA, and then drops the older one. A coordinator may lag
// behind another one by some seconds, and a client must not return to a dropped CA. Of CAs
// that were made within a second, each may be the newer one.
func supersedes(presented, trusted []*x509.Certificate) bool {
	if len(presented) == 0 || len(trusted) == 0 {
		return len(presented) > 0
	}
	added := slices.DeleteFunc(slices.Clone(presented), func(ca *x509.Certificate) bool { return slices.ContainsFunc(trusted, ca.Equal) })
	if len(added) > 0 {
		return !lastMade(added).Before(lastMade(trusted))
	}
	return len(presented) < len(trusted) && !lastMade(presented).Before(lastMade(trusted))
}

// lastMade returns when the newest CA was made.
func lastMade(list []*x509.Certificate) (last time.Time) {
	for _, ca := range list {
		if ca.NotBefore.After(last) {
			last = ca.NotBefore
		}
	}
	return last
}

// mayLearn reports whether a handshake should be made because a coordinator that trusts
// the named CAs has answered. At most one is made at a time and each second.
func (c *clusterCAs) mayLearn(named string) bool {
	if len(named) != trustDigits || named == c.trust.Load().name {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := time.Since(c.askedAt)
	if passed < learnDelay || named == c.asked && passed < relearnDelay {
		return false
	}
	c.asked, c.askedAt = named, time.Now()
	return true
}

// meet connects to the coordinator at addr to learn the CAs that it presents. If its
// certificate is not trusted any more, nobody can tell whom the open connections reach: they
// end, and calls return why.
func (c *clusterCAs) meet(ctx context.Context, addr string, dial func(ctx context.Context, addr string) (net.Conn, error)) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	raw, err := dial(ctx, addr)
	if err != nil {
		return // its next answer names them again
	}
	defer func() { _ = raw.Close() }() // nothing was sent
	err = tls.Client(raw, c.config).HandshakeContext(ctx)
	if errors.Is(err, tlsconf.ErrOtherCA) {
		c.open.CloseAll()
	}
}

// followCAs makes the client follow the CAs of its cluster, if its credentials can.
//
//nolint:contextcheck,nolintlint // its callers would be reported: the handshakes belong to the client, not to a call
func (c *Client) followCAs() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	following, ok := c.cfg.Credentials.(*followingCredentials)
	if !ok {
		return
	}
	following = following.forClient()
	c.cfg.Credentials = following
	c.identity.trusts = func(conn *grpc.ClientConn, named string) {
		if !following.cas.mayLearn(named) {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for addr, open := range c.conns { // none once the client is closed
			if _, socket := socketPath(addr); open == conn && !socket {
				c.running.Go(func() { following.cas.meet(ctx, addr, c.cfg.Dial) })
			}
		}
	}
}
