package worker

import (
	"cmp"
	"errors"
	"fmt"
	"sync"

	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/worker/process"
)

// RunAsOwner is the value of Config.RunAs with which each command runs under the user of
// its job's owner.
const RunAsOwner = "owner"

// stranger stands for any user of commands when the worker starts: it has no rights but
// those of everyone.
var stranger = &process.User{Name: "nobody", UID: 65534, GID: 65534}

var errOwnersUnproven = errors.New("invalid --run-as owner: only a cluster with identities proves who owns a job: join one by a join string (dtaskctl join-token create worker)")

// owners run the commands of each owner under a user of its own. A supervisor never runs
// programs of two users, so each user has a pool.
type owners struct {
	users *ownerMap // nil: all commands have one user

	mu    sync.Mutex // guards the rest
	pools map[string]*process.Pool
}

// openOwners checks that this process can run commands under other users, and reads the
// map.
func openOwners(path string) (*ownerMap, error) {
	if err := stranger.Check(); err != nil {
		return nil, fmt.Errorf("invalid --run-as owner: %w", err)
	}
	return openOwnerMap(path)
}

// poolOf returns the pool that runs an attempt's commands.
func (w *Worker) poolOf(a *attempt) (*process.Pool, error) {
	if w.owners.users == nil || a.policy.GetType() != "" {
		return &w.programs, nil
	}
	user, err := w.owners.users.userFor(a.jobContext.GetOwner(), cmp.Or(a.jobContext.GetNamespace(), auth.DefaultNamespace))
	if err != nil {
		return nil, err
	}
	return w.owners.pool(user), nil
}

// pool returns the pool of a user. One whose groups have changed is another user.
func (o *owners) pool(user *process.User) *process.Pool {
	key := fmt.Sprint(*user)
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pools[key]
	if p == nil {
		if o.pools == nil {
			o.pools = make(map[string]*process.Pool)
		}
		p = &process.Pool{User: user}
		o.pools[key] = p
	}
	return p
}

// stats returns what all pools have counted.
func (o *owners) stats() (sum process.PoolStats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pools {
		s := p.Stats()
		sum.Started, sum.Lost = sum.Started+s.Started, sum.Lost+s.Lost
	}
	return sum
}

// close ends all pools.
func (o *owners) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pools {
		p.Close()
	}
}

// checkRunAs returns an error for options that can't be combined.
func (c *Config) checkRunAs() error {
	switch {
	case c.RunAs != RunAsOwner && c.RunAsMap != "":
		return errors.New("invalid --run-as-map: needs --run-as owner")
	case c.RunAs != RunAsOwner:
		return nil
	case c.RunAsMap == "":
		return errors.New("missing --run-as-map: --run-as owner needs a file that maps identities to users of this machine")
	case c.JoinString == "" && !c.mayBeMember():
		return errOwnersUnproven
	}
	return nil
}
