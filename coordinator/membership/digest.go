package membership

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

	"github.com/dtask/dtask/coordinator/raftnode"
	"github.com/dtask/dtask/fsm"
)

// DivergedError reports that this replica's state differs from the state that a
// majority of all replicas has. The replica must stop.
type DivergedError struct {
	Index        uint64
	Ours, Theirs uint64
	Majority     []string // server ids
}

// Error names the entry and the replicas that agree.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("state diverged at log entry %d: the digest is %016x here and %016x on %s",
		e.Index, e.Ours, e.Theirs, strings.Join(e.Majority, ", "))
}

// ComparerConfig is what a Comparer needs. Zero durations mean the defaults;
// everything else is required.
type ComparerConfig struct {
	ServerID string
	// Marks returns this replica's digests from an index on; Machine.Marks.
	Marks func(from uint64) []fsm.Mark
	// Members returns the cluster's configuration, this replica included.
	Members func() []raftnode.Server
	// Fetch asks another replica for its digests; Peers.Digests. It is called from
	// several goroutines.
	Fetch func(ctx context.Context, address string, from uint64) (
		serverID string, marks []fsm.Mark, err error)
	// Alarm is called with a message when replicas disagree and no majority agrees:
	// assignment must stop. It is called with an empty one when a majority agrees
	// again on a newer entry.
	Alarm  func(message string)
	Logger *slog.Logger

	Interval time.Duration // between two comparisons; default 2 s
	Timeout  time.Duration // of one Fetch; default 1 s
}

// compareWindow is how many entries back digests are compared. A running digest
// differs forever after the first difference, so that a skipped entry hides nothing.
const compareWindow = 1024

// Comparer compares this replica's state with the states of the others. Every
// replica has one, leader or not.
type Comparer struct {
	cfg     ComparerConfig
	agreed  uint64          // highest index on which a majority agrees without contradiction
	alarmed uint64          // index of the disagreement of the alarm; 0 = none
	warned  map[string]bool // replicas that were found to be wrong
}

// NewComparer makes a comparer.
func NewComparer(cfg ComparerConfig) *Comparer {
	if cfg.Interval == 0 {
		cfg.Interval = 2 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	return &Comparer{cfg: cfg, warned: make(map[string]bool)}
}

// Run compares until ctx is done and returns nil then. It returns a *DivergedError
// when this replica turns out to be wrong.
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
		return nil // an idle cluster has nothing to compare
	}
	own = own[max(0, len(own)-compareWindow):]
	d := c.collect(ctx, members, own[0].Index)
	d.add(c.cfg.ServerID, own)
	found := d.judge(c.cfg.ServerID, len(members))
	if _, diverged := errors.AsType[*DivergedError](found.err); diverged {
		return found.err
	}
	for _, id := range found.wrong {
		if !c.warned[id] {
			c.warned[id] = true
			c.cfg.Logger.ErrorContext(ctx, "state of another replica diverged; it should stop",
				"server_id", id)
		}
	}
	if found.undecided == "" && len(found.wrong) == 0 {
		c.agreed = max(c.agreed, found.agreed)
	}
	switch {
	case found.undecided != "":
		if c.alarmed == 0 {
			c.cfg.Logger.ErrorContext(ctx, "replicas disagree without a majority; assignment stopped",
				"index", found.at, "digests", found.undecided)
			c.cfg.Alarm(found.undecided)
		}
		c.alarmed = max(c.alarmed, found.at)
	case c.alarmed > 0 && found.agreed > c.alarmed:
		c.cfg.Logger.WarnContext(ctx, "a majority of the replicas agrees again",
			"index", found.agreed)
		c.cfg.Alarm("")
		c.alarmed = 0
	}
	return nil
}

// collect asks all other members at once. Those that do not answer are left out.
func (c *Comparer) collect(ctx context.Context, members []raftnode.Server, from uint64) digests {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	d := make(digests)
	var mu sync.Mutex // guards d
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
			d.add(id, marks)
		})
	}
	asking.Wait()
	return d
}

// digests are state digests by index, then by server id.
type digests map[uint64]map[string]uint64

func (d digests) add(id string, marks []fsm.Mark) {
	for _, m := range marks {
		if d[m.Index] == nil {
			d[m.Index] = make(map[string]uint64)
		}
		d[m.Index][id] = m.Digest
	}
}

// finding is the result of a comparison.
type finding struct {
	err       error    // *DivergedError
	wrong     []string // other replicas that differ from a majority
	undecided string   // the digests, if no majority agrees
	at        uint64   // index of undecided
	agreed    uint64   // highest index on which a majority agrees
}

// judge checks the indexes in ascending order: at the first difference most replicas
// have arrived, and a replica that is wrong there proves nothing about later entries.
// total is the number of all replicas, whether they answered or not.
func (d digests) judge(self string, total int) finding {
	var f finding
	for _, index := range slices.Sorted(maps.Keys(d)) {
		byServer := d[index]
		for _, id := range f.wrong {
			delete(byServer, id)
		}
		groups := groupDigests(byServer)
		if len(groups) == 0 {
			continue
		}
		first := groups[0]
		switch {
		case len(first.ids) > total/2:
			f.agreed = index
			for _, other := range groups[1:] {
				if slices.Contains(other.ids, self) {
					f.err = &DivergedError{
						Index: index, Ours: other.digest, Theirs: first.digest,
						Majority: first.ids,
					}
					return f
				}
				f.wrong = append(f.wrong, other.ids...)
			}
		case len(groups) > 1:
			f.undecided, f.at = describe(index, groups), index
			return f
		}
	}
	return f
}

// digestGroup are replicas with the same digest.
type digestGroup struct {
	digest uint64
	ids    []string // sorted
}

// groupDigests groups replicas by digest, the largest group first.
func groupDigests(byServer map[string]uint64) []digestGroup {
	var groups []digestGroup
	for _, id := range slices.Sorted(maps.Keys(byServer)) {
		i := slices.IndexFunc(groups, func(g digestGroup) bool { return g.digest == byServer[id] })
		if i < 0 {
			groups = append(groups, digestGroup{digest: byServer[id]})
			i = len(groups) - 1
		}
		groups[i].ids = append(groups[i].ids, id)
	}
	slices.SortStableFunc(groups, func(a, b digestGroup) int {
		return cmp.Compare(len(b.ids), len(a.ids))
	})
	return groups
}

func describe(index uint64, groups []digestGroup) string {
	parts := make([]string, len(groups))
	for i, g := range groups {
		parts[i] = fmt.Sprintf("%s: %016x", strings.Join(g.ids, ", "), g.digest)
	}
	return fmt.Sprintf("replicas disagree about the state after log entry %d and no majority agrees (%s)",
		index, strings.Join(parts, "; "))
}
