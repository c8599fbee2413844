package coordinator

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
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

// A leader whose clock is wrong neither locks out those who have access, nor lets in those whose
// access has ended, and gives access for the time that was asked for.
func TestAccessFollowsTheClockOfTheMajorityUnderALeaderWhoseClockIsWrong(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 200 * day, "behind": -200 * day} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newYearCluster(t, time.Now())
			c.clocks = map[string]*wrongClock{"n1": {}, "n2": {}, "n3": {}}
			admin := c.start(t.Context())
			leader := c.leader(admin)
			token := createToken(t, admin, "before", 90*day)
			join, _, err := admin.CreateJoinToken(t.Context(), client.JoinTokenOptions{Purpose: "user", Role: "reader", TTL: time.Hour, Uses: 1})
			if err != nil {
				t.Fatal(err)
			}
			c.clocks[leader.ID].ahead.Store(int64(ahead))

			user := c.user(leader, token)
			if _, err := user.WhoAmI(t.Context()); err != nil {
				t.Errorf("a token of 90 days: %v", err)
			}
			c.wantTokenOf(admin, time.Hour)
			text, err := client.ParseJoinString(join, "user")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Join(t.Context(), client.Config{}, client.JoinOptions{String: text, Name: "you", Token: client.NewToken()}); err != nil {
				t.Errorf("a join string of an hour: %v", err)
			}
			short := c.user(leader, createToken(t, admin, "short", time.Second))
			until(t, "a token of a second ends", func() error {
				if _, err := short.WhoAmI(t.Context()); !errors.Is(err, client.ErrUnauthenticated) {
					return errors.Join(errors.New("it counts"), err)
				}
				return nil
			})
			if status, err := admin.ClusterStatus(t.Context()); err != nil || status.GetLeader() != leader.ID {
				t.Errorf("the leader has changed, so that nothing is proven: %v", err)
			}
		})
	}
}

// leader returns the replica that leads.
func (c *yearCluster) leader(admin *client.Client) Peer {
	c.t.Helper()
	status, err := admin.ClusterStatus(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.peers {
		if p.ID == status.GetLeader() {
			return p
		}
	}
	c.t.Fatalf("no leader: %v", status)
	return Peer{}
}

// createToken makes a token of a reader.
func createToken(t *testing.T, admin *client.Client, name string, ttl time.Duration) (token client.Secret) {
	t.Helper()
	until(t, "the level allows identities", func() (err error) {
		token, _, err = admin.CreateToken(t.Context(), client.TokenOptions{Name: name, Role: "reader", TTL: ttl})
		return err
	})
	return token
}

// user returns a client with a token that knows the address of one replica.
func (c *yearCluster) user(at Peer, token client.Secret) *client.Client {
	c.t.Helper()
	user, err := client.New(client.Config{Addrs: []string{at.Address}, Token: token, Timeout: 5 * time.Second, Credentials: credentials.NewTLS(c.trust.Config(nil, nil))})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = user.Close() })
	return user
}

// wantTokenOf makes a token, and checks by the right clock when it expires.
func (c *yearCluster) wantTokenOf(admin *client.Client, ttl time.Duration) {
	c.t.Helper()
	_, identity, err := admin.CreateToken(c.t.Context(), client.TokenOptions{Name: "during", Role: "reader", TTL: ttl})
	if err != nil {
		c.t.Fatal(err)
	}
	if left := time.Until(time.UnixMilli(identity.GetExpiresAt())); (left - ttl).Abs() > time.Minute {
		c.t.Errorf("a token of %v ends in %v", ttl, left)
	}
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
