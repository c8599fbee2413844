package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/fsm"
)

// DivergedError says that this replica's state differs from what a majority of
// all replicas agrees on. It must stop itself.
type DivergedError struct {
	Index        uint64
	Ours, Theirs uint64
	Majority     []string // server ids
}

// Error names the entry and those who agree.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("the state after log entry %d is damaged here: its digest is %016x, and %s agree on %016x",
		e.Index, e.Ours, strings.Join(e.Majority, ", "), e.Theirs)
}

// ComparerConfig is what a Comparer needs. Zero durations mean the defaults; all
// else is required.
type ComparerConfig struct {
	ServerID string
	// Marks gives this replica's digests from an index on; Machine.Marks.
	Marks func(from uint64) []fsm.Mark
	// Members gives the cluster's configuration, this replica included.
	Members func() []Member
	// Fetch asks another replica for its digests; Peers.Digests. Called from
	// several goroutines.
	Fetch func(ctx context.Context, address string, from uint64) (serverID string, marks []fsm.Mark, err error)
	// Alarm is called with a message when replicas disagree and no majority
	// agrees on anything: nothing may be assigned then. It is called with an
	// empty one when a majority has agreed again on something newer.
	Alarm  func(message string)
	Logger *slog.Logger

	Interval time.Duration // between two comparisons; default 2 s
	Limit    time.Duration // of one Fetch; default 1 s
}

// compareWindow is how many entries back digests are compared. They are running
// digests: replicas that differ once differ ever after, so that a comparison
// loses nothing by missing an entry.
const compareWindow = 1024

// Comparer compares this replica's state with the others' again and again. Every
// replica has one, leader or not.
type Comparer struct {
	cfg     ComparerConfig
	agreed  uint64          // up to this index a majority agrees, and nobody contradicts
	alarmed uint64          // index of the disagreement of the alarm; 0 = none
	warned  map[string]bool // replicas that were found to be wrong
}

// NewComparer makes a comparer.
func NewComparer(cfg ComparerConfig) *Comparer {
	if cfg.Interval == 0 {
		cfg.Interval = 2 * time.Second
	}
	if cfg.Limit == 0 {
		cfg.Limit = time.Second
	}
	return &Comparer{cfg: cfg, warned: make(map[string]bool)}
}

// Run compares until ctx is done, which is no error, or until this replica is
// found to be wrong: then it returns a *DivergedError and the replica must stop.
func (c *Comparer) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.compare(ctx); err != nil {
			return err
		}
	}
}

func (c *Comparer) compare(ctx context.Context) error {
	members := c.cfg.Members()
	own := c.cfg.Marks(c.agreed)
	if len(members) < 2 || len(own) == 0 || own[len(own)-1].Index == c.agreed {
		return nil // nothing new: a cluster at rest compares nothing
	}
	own = own[max(0, len(own)-compareWindow):]
	b := c.collect(ctx, members, own[0].Index)
	b.add(c.cfg.ServerID, own)
	found := b.judge(c.cfg.ServerID, len(members))
	if _, diverged := errors.AsType[*DivergedError](found.err); diverged {
		return found.err
	}
	for _, id := range found.wrong {
		if !c.warned[id] {
			c.warned[id] = true
			c.cfg.Logger.ErrorContext(ctx, "another replica's state is damaged, it should stop itself", "server_id", id)
		}
	}
	if found.undecided == "" && len(found.wrong) == 0 {
		c.agreed = max(c.agreed, found.agreed)
	}
	switch {
	case found.undecided != "":
		if c.alarmed == 0 {
			c.cfg.Logger.ErrorContext(ctx, "replicas disagree and no majority agrees", "index", found.at, "digests", found.undecided)
			c.cfg.Alarm(found.undecided)
		}
		c.alarmed = max(c.alarmed, found.at)
	case c.alarmed > 0 && found.agreed > c.alarmed:
		c.cfg.Logger.WarnContext(ctx, "a majority of the replicas agrees again", "index", found.agreed)
		c.cfg.Alarm("")
		c.alarmed = 0
	}
	return nil
}

// collect asks all other members at once. Those that do not answer are left out.
func (c *Comparer) collect(ctx context.Context, members []Member, from uint64) ballots {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Limit)
	defer cancel()
	b := make(ballots)
	var mu sync.Mutex // guards b
	var asking sync.WaitGroup
	for _, m := range members {
		if m.ID == c.cfg.ServerID {
			continue
		}
		asking.Go(func() {
			id, marks, err := c.cfg.Fetch(ctx, m.Address, from)
			if err != nil || id != m.ID {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			b.add(id, marks)
		})
	}
	asking.Wait()
	return b
}

// ballots are digests: by index, then by server id.
type ballots map[uint64]map[string]uint64

func (b ballots) add(id string, marks []fsm.Mark) {
	for _, m := range marks {
		if b[m.Index] == nil {
			b[m.Index] = make(map[string]uint64)
		}
		b[m.Index][id] = m.Digest
	}
}

// finding is what a comparison found.
type finding struct {
	err       error    // *DivergedError
	wrong     []string // other replicas that a majority contradicts
	undecided string   // who has what, where no majority agrees
	at        uint64   // index of undecided
	agreed    uint64   // highest index on which a majority agrees
}

// judge looks at the indexes from the lowest on: where replicas begin to differ,
// most of them have arrived already, and a replica that is found to be wrong
// there says nothing about what follows. total is the number of all replicas,
// whether they answered or not.
func (b ballots) judge(self string, total int) finding {
	var f finding
	for _, index := range slices.Sorted(maps.Keys(b)) {
		votes := b[index]
		for _, id := range f.wrong {
			delete(votes, id)
		}
		camps := campsOf(votes)
		if len(camps) == 0 {
			continue
		}
		first := camps[0]
		switch {
		case len(first.ids) > total/2:
			f.agreed = index
			for _, other := range camps[1:] {
				if slices.Contains(other.ids, self) {
					f.err = &DivergedError{Index: index, Ours: other.digest, Theirs: first.digest, Majority: first.ids}
					return f
				}
				f.wrong = append(f.wrong, other.ids...)
			}
		case len(camps) > 1:
			f.undecided, f.at = describe(index, camps), index
			return f
		}
	}
	return f
}

// camp are replicas that have the same digest.
type camp struct {
	digest uint64
	ids    []string // sorted
}

// campsOf sorts votes into camps, the largest first.
func campsOf(votes map[string]uint64) []camp {
	var camps []camp
	for _, id := range slices.Sorted(maps.Keys(votes)) {
		i := slices.IndexFunc(camps, func(c camp) bool { return c.digest == votes[id] })
		if i < 0 {
			camps = append(camps, camp{digest: votes[id]})
			i = len(camps) - 1
		}
		camps[i].ids = append(camps[i].ids, id)
	}
	slices.SortStableFunc(camps, func(a, b camp) int { return cmp.Compare(len(b.ids), len(a.ids)) })
	return camps
}

func describe(index uint64, camps []camp) string {
	var text strings.Builder
	fmt.Fprintf(&text, "replicas disagree about the state after log entry %d, and no majority agrees:", index)
	for i, c := range camps {
		if i > 0 {
			text.WriteByte(';')
		}
		fmt.Fprintf(&text, " %s have %016x", strings.Join(c.ids, ", "), c.digest)
	}
	return text.String()
}
