package nemesis

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/test/chaos/proxy"
)

func networkFaults() []fault {
	return []fault{
		{"F21", "leader-isolated", leaderCut(proxy.Gone(), true)},
		{"F22", "leader-without-followers", leaderCut(proxy.Cut(), false)},
		{"F23", "leader-deaf", oneway(false)},
		{"F24", "leader-dumb", oneway(true)},
		{"F25", "minority-with-old-leader", minority},
		{"F26", "bridge", bridge},
		{"F27", "random-halves", halves},
		{"F28", "blackhole", leaderCut(proxy.Swallow(), true)},
		{"F29", "reset-storm", resetStorm},
		{"F30", "latency", latency},
		{"F31", "stalls", stalls},
		{"F32", "slow-drip", drip},
		{"F33", "flapping", flapping},
		{"F34", "workers-cut-off", workersCutOff},
		{"F35", "leader-serves-nobody", servesNobody},
		{"F36", "cut-in-install", cutInInstall},
		{"F37", "swizzle-clog", swizzle},
	}
}

// onLinks takes links, breaks them, holds, and heals them.
func onLinks(ctx context.Context, w *World, fault string, hold time.Duration, things []string, harm func() error) error {
	if w.Net == nil {
		return ErrCannot
	}
	release, err := w.Take(fault, things...)
	if err != nil {
		return err
	}
	defer release()
	err = harm()
	if err == nil {
		pauseOr(ctx, hold)
	}
	return errors.Join(err, w.Net.heal(things...))
}

// heal heals links by the names under which they were taken.
func (n *Net) heal(things ...string) error {
	var errs []error
	for _, t := range things {
		switch t {
		case PeerLinks:
			errs = append(errs, n.Heal(n.Replicas...))
		case WorkerLinks:
			errs = append(errs, n.Heal(n.Workers...))
		case ClientLinks:
			errs = append(errs, n.Heal(n.Groups...))
		}
	}
	return errors.Join(errs...)
}

func allLinks() []string { return []string{PeerLinks, WorkerLinks, ClientLinks} }

// leaderName returns the leader's name and the names of the other replicas.
func (w *World) leaderName(ctx context.Context) (leader string, others []string, err error) {
	n, err := w.Leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return n.Name, replicas(w.Cluster.Followers(n)...), nil
}

// leaderCut disconnects the leader from the other replicas, or from everything.
func leaderCut(rules proxy.Rules, whole bool) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		leader, others, err := w.leaderName(ctx)
		if err != nil {
			return err
		}
		things := []string{PeerLinks}
		if whole {
			things = allLinks()
		}
		return onLinks(ctx, w, "leader cut off", hold, things, func() error {
			if whole {
				others = append(append(others, w.Net.Workers...), w.Net.Groups...)
			}
			return w.Net.Split([]string{leader}, others, rules)
		})
	}
}

// oneway delivers only what the leader sends, or only what is sent to it.
func oneway(out bool) func(context.Context, *World, time.Duration) error {
	return func(ctx context.Context, w *World, hold time.Duration) error {
		leader, others, err := w.leaderName(ctx)
		if err != nil {
			return err
		}
		return onLinks(ctx, w, "one way", hold, []string{PeerLinks}, func() error {
			var errs []error
			for _, o := range others {
				if out {
					errs = append(errs, w.Net.Oneway(leader, o))
				} else {
					errs = append(errs, w.Net.Oneway(o, leader))
				}
			}
			return errors.Join(errs...)
		})
	}
}

// minority leaves the leader one worker and one group of clients.
func minority(ctx context.Context, w *World, hold time.Duration) error {
	leader, others, err := w.leaderName(ctx)
	if err != nil {
		return err
	}
	return onLinks(ctx, w, "minority", hold, allLinks(), func() error {
		with := append([]string{leader}, w.Net.Workers[:1]...)
		with = append(with, w.Net.Groups[:1]...)
		rest := append(append(others, w.Net.Workers[1:]...), w.Net.Groups[1:]...)
		return w.Net.Split(with, rest, proxy.Cut())
	})
}

// bridge cuts one link between two replicas: both still see the third.
func bridge(ctx context.Context, w *World, hold time.Duration) error {
	if w.Net == nil {
		return ErrCannot
	}
	names := w.shuffled(w.Net.Replicas)
	return onLinks(ctx, w, "bridge", hold, []string{PeerLinks}, func() error {
		return w.Net.Both(names[0], names[1], proxy.Cut())
	})
}

func (w *World) shuffled(names []string) []string {
	names = append([]string{}, names...)
	w.Random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// halves divides all processes into two random sides.
func halves(ctx context.Context, w *World, hold time.Duration) error {
	if w.Net == nil {
		return ErrCannot
	}
	names := w.shuffled(w.Net.everybody())
	return onLinks(ctx, w, "halves", hold, allLinks(), func() error {
		return w.Net.Split(names[:len(names)/2], names[len(names)/2:], proxy.Cut())
	})
}

// repeat calls a function repeatedly while a fault holds.
func repeat(ctx context.Context, hold, every time.Duration, do func() error) error {
	for deadline := time.Now().Add(hold); time.Now().Before(deadline) && ctx.Err() == nil; {
		if err := do(); err != nil {
			return err
		}
		pauseOr(ctx, every)
	}
	return nil
}

// resetStorm resets all connections five times a second.
func resetStorm(ctx context.Context, w *World, hold time.Duration) error {
	return onLinks(ctx, w, "reset storm", 0, allLinks(), func() error {
		return repeat(ctx, max(hold, time.Second), 200*time.Millisecond, func() error {
			w.Net.Reset(w.Net.everybody()...)
			return nil
		})
	})
}

// latency makes all links of replicas slow, or one very slow.
func latency(ctx context.Context, w *World, hold time.Duration) error {
	return onLinks(ctx, w, "latency", hold, []string{PeerLinks}, func() error {
		if w.Random.IntN(3) == 0 {
			names := w.shuffled(w.Net.Replicas)
			return w.Net.Both(names[0], names[1], proxy.Slow(500*time.Millisecond, 50*time.Millisecond))
		}
		return w.Net.Split(w.Net.Replicas, w.Net.Replicas, proxy.Slow(25*time.Millisecond, 100*time.Millisecond))
	})
}

// stalls stops links for short times, as lost packets do, and cuts the bytes into
// small pieces.
func stalls(ctx context.Context, w *World, hold time.Duration) error {
	return onLinks(ctx, w, "stalls", 0, allLinks(), func() error {
		return repeat(ctx, max(hold, time.Second), 50*time.Millisecond, func() error {
			from := w.Net.everybody()
			a, b := from[w.Random.IntN(len(from))], w.Net.Replicas[w.Random.IntN(len(w.Net.Replicas))]
			rules := proxy.Rules{Forward: proxy.Flow{Slice: 1 + w.Random.IntN(700)}, Back: proxy.Flow{Slice: 1 + w.Random.IntN(700)}}
			switch w.Random.IntN(3) {
			case 0:
				rules.Forward.Stall = true
			case 1:
				rules.Back.Stall = true
			}
			return w.Net.Set(a, b, rules)
		})
	})
}

// drip limits one follower to a kilobyte per second.
func drip(ctx context.Context, w *World, hold time.Duration) error {
	leader, others, err := w.leaderName(ctx)
	if err != nil {
		return err
	}
	return onLinks(ctx, w, "drip", hold, []string{PeerLinks}, func() error {
		return w.Net.Set(leader, others[w.Random.IntN(len(others))], proxy.Rules{Forward: proxy.Flow{Rate: 1000}})
	})
}

// flapping cuts a link of the leader five times a second.
func flapping(ctx context.Context, w *World, hold time.Duration) error {
	leader, others, err := w.leaderName(ctx)
	if err != nil {
		return err
	}
	other := others[w.Random.IntN(len(others))]
	bad := false
	return onLinks(ctx, w, "flapping", 0, []string{PeerLinks}, func() error {
		return repeat(ctx, max(hold, time.Second), 100*time.Millisecond, func() error {
			bad = !bad
			rules := proxy.Rules{}
			if bad {
				rules = proxy.Gone()
			}
			return w.Net.Both(leader, other, rules)
		})
	})
}

// workersCutOff disconnects some workers, but never all, from all replicas.
func workersCutOff(ctx context.Context, w *World, hold time.Duration) error {
	return onLinks(ctx, w, "workers cut off", hold, []string{WorkerLinks}, func() error {
		names := w.shuffled(w.Net.Workers)
		return w.Net.Split(names[:1+w.Random.IntN(max(1, len(names)/2))], w.Net.Replicas, proxy.Cut())
	})
}

// servesNobody leaves the leader only its followers.
func servesNobody(ctx context.Context, w *World, hold time.Duration) error {
	leader, _, err := w.leaderName(ctx)
	if err != nil {
		return err
	}
	return onLinks(ctx, w, "serves nobody", hold, []string{WorkerLinks, ClientLinks}, func() error {
		return w.Net.Split([]string{leader}, append(append([]string{}, w.Net.Workers...), w.Net.Groups...), proxy.Gone())
	})
}

// cutInInstall cuts the link to a follower while it receives a snapshot, several times.
func cutInInstall(ctx context.Context, w *World, _ time.Duration) error {
	if w.Net == nil {
		return ErrCannot
	}
	links, err := w.Take("cut in install", PeerLinks)
	if err != nil {
		return err
	}
	defer links()
	some, release, err := w.takeProcesses(ctx, "cut in install", aFollower)
	if err != nil {
		return err
	}
	n := some[0]
	if err = w.leaveBehind(ctx, n); err != nil {
		return errors.Join(err, w.revive(ctx, release, n))
	}
	cut := proxy.Rules{Forward: proxy.Flow{CutAfter: 6000}}
	var errs []error
	for _, other := range w.others(n) {
		errs = append(errs, w.Net.Set(other.Name, n.Name, cut))
	}
	errs = append(errs, w.revive(ctx, release, n), awaitTmp(ctx, n, 5*time.Second))
	pauseOr(ctx, time.Second)
	return errors.Join(append(errs, w.Net.Heal(w.Net.Replicas...))...)
}

// swizzle stops links one by one, and restores them in another order.
func swizzle(ctx context.Context, w *World, hold time.Duration) error {
	return onLinks(ctx, w, "swizzle", 0, allLinks(), func() error {
		names := w.shuffled(w.Net.everybody())
		names = names[:min(len(names), 4)]
		step := max(hold, time.Second) / time.Duration(2*len(names))
		for _, rules := range []proxy.Rules{proxy.Cut(), {}} {
			for _, name := range names {
				if err := w.Net.Split([]string{name}, w.Net.Replicas, rules); err != nil {
					return err
				}
				pauseOr(ctx, step)
			}
			names = w.shuffled(names)
		}
		return nil
	})
}
