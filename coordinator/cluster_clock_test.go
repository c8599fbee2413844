package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// wrongClock is a wall clock that is ahead of the right one; by less than zero, it is behind.
type wrongClock struct{ ahead atomic.Int64 }

func (c *wrongClock) now() time.Time {
	return time.Now().Round(0).Add(time.Duration(c.ahead.Load()))
}

const day = 24 * time.Hour

func TestTheClocksOfMoreThanHalfOfTheMembersDecide(t *testing.T) {
	t.Parallel()
	const none = time.Duration(-1)
	for name, test := range map[string]struct {
		ahead   []time.Duration // of those that answered
		members int
		want    time.Duration // none: no majority agrees
	}{
		"alone":                                 {[]time.Duration{0}, 1, 0},
		"all agree":                             {[]time.Duration{0, time.Second, -time.Second}, 3, 0},
		"one is wrong":                          {[]time.Duration{0, 9 * time.Second, day}, 3, 0},
		"this one is ahead":                     {[]time.Duration{0, -day, -day - time.Second}, 3, -day},
		"this one is behind":                    {[]time.Duration{0, day, day}, 3, day},
		"one does not answer":                   {[]time.Duration{0, time.Second}, 3, 0},
		"two disagree, one does not":            {[]time.Duration{0, day}, 3, none},
		"all disagree":                          {[]time.Duration{0, day, -day}, 3, none},
		"nobody answers":                        {[]time.Duration{0}, 3, none},
		"two of four are not more":              {[]time.Duration{0, 0, day, day}, 4, none},
		"three of five":                         {[]time.Duration{0, day, day, day, -day}, 5, day},
		"the extremes of what can be sent":      {[]time.Duration{0, maxDistance, -maxDistance}, 3, none},
		"a chain of clocks, each near the next": {[]time.Duration{0, 9 * time.Second, 18 * time.Second}, 3, 0},
	} {
		got, ok := majorityOffset(test.ahead, test.members)
		if !ok {
			got = none
		}
		if got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A clock that is a little wrong and is then set a little is wrong by the sum: a schedule would
// fire early by more than maxSkew until the next comparison.
func TestAClockThatIsSetAddsToItsDifference(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ahead   []time.Duration // at the comparison, of those that answered
		members int
		set     time.Duration // afterwards
		want    bool
	}{
		"right, and set a little":         {[]time.Duration{0, 0, 0}, 3, 9 * time.Second, true},
		"right, and set back":             {[]time.Duration{0, time.Second, day}, 3, -9 * time.Second, true},
		"right, and set too far":          {[]time.Duration{0, 0, 0}, 3, 11 * time.Second, false},
		"nearly wrong":                    {[]time.Duration{0, 9 * time.Second, day}, 3, 0, true},
		"nearly wrong, and set a little":  {[]time.Duration{0, 9 * time.Second, 9 * time.Second}, 3, 2 * time.Second, false},
		"the nearest of the others count": {[]time.Duration{0, 9 * time.Second, time.Second}, 3, 5 * time.Second, true},
		"too few answered":                {[]time.Duration{0, 0}, 5, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var own wrongClock
			c := &clockMonitor{wall: own.now}
			_, skew := agreement(test.ahead, test.members)
			c.agreed.Store(&clockReading{wall: own.now(), at: time.Now(), skew: skew})
			time.Sleep(time.Second)
			own.ahead.Store(int64(test.set))
			if got := c.agrees(); got != test.want {
				t.Errorf("%s: agrees %t, want %t", name, got, test.want)
			}
		})
	}
}

func TestTheClockOfAReplicaCountsIfNoMajorityAgreesInTheEnd(t *testing.T) {
	t.Parallel()
	var own wrongClock
	c := newClusterClock(own.now)
	for range maxFailed {
		if c.known() {
			t.Fatal("known too early")
		}
		c.note(comparison{})
		c.note(comparison{agree: 1, of: 3})
	}
	if !c.known() {
		t.Error("never known")
	}
}

func TestTheClusterKeepsItsTimeWhileAClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var own wrongClock
		c := newClusterClock(own.now)
		if c.known() || !c.now().Equal(own.now()) {
			t.Error("before a comparison, the time is not that of this replica")
		}
		c.note(comparison{of: 3, majority: &clockReading{wall: own.now(), at: time.Now()}})
		right := own.now
		for _, ahead := range []time.Duration{9 * time.Second, day, -day} {
			own.ahead.Store(int64(ahead))
			want := right().Add(-ahead)
			if ahead <= maxSkew && ahead > 0 {
				want = right() // it counts as right
			}
			if got := c.now(); !got.Equal(want) {
				t.Errorf("ahead by %v: %v, want %v", ahead, got, want)
			}
		}
		time.Sleep(time.Hour)
		c.note(comparison{agree: 1, of: 3}) // the others don't agree any more: what was known stays
		if got, want := c.now(), right().Add(day); !c.known() || !got.Equal(want) {
			t.Errorf("an hour later: %v, want %v", got, want)
		}
	})
}

// answeringPeer is a member whose clock is right.
type answeringPeer struct {
	dtaskv1.UnimplementedClusterServiceServer

	id    string
	asked func() // called before the answer
}

// Identify implements ClusterServiceServer.
func (p answeringPeer) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	p.asked()
	return &dtaskv1.IdentifyResponse{ServerId: p.id, WallMs: time.Now().UnixMilli()}, nil
}

// A clock that is set while the members answer would have been right before and wrong afterwards,
// so that each answer lies between.
func TestAClockThatIsSetDuringAComparisonDoesNotBecomeTheTimeOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 200 * day, "back": -200 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var own wrongClock
				members, listeners := []raftnode.Server{{ID: "n1"}}, make(map[string]*bufconn.Listener)
				for _, id := range []string{"n2", "n3"} {
					l, server := bufconn.Listen(1<<16), grpc.NewServer()
					dtaskv1.RegisterClusterServiceServer(server, answeringPeer{id: id, asked: func() { own.ahead.Store(int64(ahead)) }})
					members, listeners[id] = append(members, raftnode.Server{ID: id, Address: id}), l
					served := make(chan error, 1) // size 1: the result of Serve
					go func() { served <- server.Serve(l) }()
					t.Cleanup(func() {
						server.Stop()
						if err := <-served; err != nil {
							t.Error(err)
						}
					})
				}
				peers := membership.NewPeers(func(ctx context.Context, address string) (net.Conn, error) {
					return listeners[address].DialContext(ctx)
				})
				defer func() { _ = peers.Close() }()
				c := &clockMonitor{
					serverID: "n1", wall: own.now, members: func() []raftnode.Server { return members }, peers: peers, cluster: newClusterClock(own.now),
				}
				c.compare(t.Context())
				if got := c.cluster.now().Sub(time.Now().Round(0)); !c.cluster.known() || got.Abs() > maxSkew {
					t.Errorf("the time of the cluster is off by %v", got)
				}
			})
		})
	}
}

// A leader whose clock is wrong neither locks out those who have access, nor lets in those whose
// access has ended, and gives access for the time that was asked for.
func TestAccessFollowsTheClockOfTheMajorityUnderALeaderWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 200 * day, "behind": -200 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newYearCluster(t, time.Now())
			c.clocks = map[string]*wrongClock{"n1": {}, "n2": {}, "n3": {}}
			c.start(t.Context())
			again, err := true, error(nil)
			for n := 1; again && n <= 5; n++ {
				again, err = c.accessUnder(ahead, fmt.Sprint(n))
			}
			if again || err != nil {
				t.Errorf("after 5 leaders: %t; %v", again, err)
			}
		})
	}
}

// accessUnder makes the clock of the leader wrong, and returns what is wrong with access then.
// names end with a text that no other call has. again means that another replica leads now, so
// that nothing is proven.
func (c *yearCluster) accessUnder(ahead time.Duration, text string) (again bool, err error) {
	c.t.Helper()
	token := c.createToken("before"+text, 90*day)
	var join client.Secret
	c.administer("a join string is made", func(ctx context.Context, admin *client.Client) (err error) {
		join, _, err = admin.CreateJoinToken(ctx, client.JoinTokenOptions{Purpose: "user", Role: "reader", TTL: time.Hour, Uses: 1})
		return err
	})
	leader, admin, err := c.lead()
	if err != nil {
		return true, err
	}
	c.clocks[leader.ID].ahead.Store(int64(ahead))
	defer c.clocks[leader.ID].ahead.Store(0)
	err = errors.Join(
		c.uses(leader, token), c.joins(join, "you"+text), c.makes(admin, "during"+text, time.Hour), c.ends(leader, c.createToken("short"+text, time.Second)),
	)
	now, _, failed := c.lead()
	return failed != nil || now.ID != leader.ID, err
}

// uses returns nil if a token counts.
func (c *yearCluster) uses(leader Peer, token client.Secret) error {
	if _, err := c.user(leader, token).WhoAmI(c.t.Context()); err != nil {
		return fmt.Errorf("a token of 90 days: %w", err)
	}
	return nil
}

// ends returns nil once a token of a second does not count.
func (c *yearCluster) ends(leader Peer, token client.Secret) (err error) {
	user := c.user(leader, token)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); <-tick.C {
		if _, err = user.WhoAmI(c.t.Context()); errors.Is(err, client.ErrUnauthenticated) {
			return nil
		}
	}
	return errors.Join(errors.New("a token of a second counts for a minute"), err)
}

// joins returns nil if a join string works.
func (c *yearCluster) joins(join client.Secret, name string) error {
	text, err := client.ParseJoinString(join, "user")
	if err != nil {
		return err
	}
	if _, err := client.Join(c.t.Context(), client.Config{}, client.JoinOptions{String: text, Name: name, Token: client.NewToken()}); err != nil {
		return fmt.Errorf("a join string of an hour: %w", err)
	}
	return nil
}

// makes returns nil if a token is made that expires, by the right clock, when it should.
func (c *yearCluster) makes(admin *client.Client, name string, ttl time.Duration) error {
	_, identity, err := admin.CreateToken(c.t.Context(), client.TokenOptions{Name: name, Role: "reader", TTL: ttl})
	if err != nil {
		return err
	}
	if left := time.Until(time.UnixMilli(identity.GetExpiresAt())); (left - ttl).Abs() > time.Minute {
		return fmt.Errorf("a token of %v ends in %v", ttl, left)
	}
	return nil
}

// createToken makes a token of a reader, once the level allows identities. Each try has a name of
// its own: one whose answer was lost with the leader may have made its token.
func (c *yearCluster) createToken(name string, ttl time.Duration) (token client.Secret) {
	c.t.Helper()
	tries := 0
	c.administer("a token is made", func(ctx context.Context, admin *client.Client) (err error) {
		tries++
		token, _, err = admin.CreateToken(ctx, client.TokenOptions{Name: fmt.Sprintf("%s-%d", name, tries), Role: "reader", TTL: ttl})
		return err
	})
	return token
}

// user returns a client with a token that knows the address of one replica.
func (c *yearCluster) user(at Peer, token client.Secret) *client.Client {
	c.t.Helper()
	user, err := client.New(client.Config{Addrs: []string{at.Address}, Token: token, Timeout: time.Minute, Credentials: credentials.NewTLS(c.trust.Config(nil, nil))})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = user.Close() })
	return user
}

// A coordinator that starts with a wrong clock issues itself a certificate that clients refuse.
// It notices that when it hears of the clocks of the others.
func TestACoordinatorThatStartsWithAWrongClockGetsACertificateThatIsValidNow(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 5 * 365 * day, "behind": -5 * 365 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newYearCluster(t, time.Now())
			c.clocks = map[string]*wrongClock{"n1": {}, "n2": {}, "n3": {}}
			c.clocks["n3"].ahead.Store(int64(ahead))
			c.start(t.Context())
			until(t, "the certificate is valid", func() error {
				r, err := tlsconf.LoadReplica(filepath.Join(c.dirs[2], "tls"))
				if err != nil {
					return err
				}
				if dates := r.OwnDates(time.Now()); dates != nil {
					return dates
				}
				return c.ask(t.Context(), c.peers[2], time.Now)
			})
		})
	}
}
