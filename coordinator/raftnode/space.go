package raftnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dtask/dtask/coordinator/transport"
)

// A full disk ends the process at the next write, and with it, one after the other,
// the cluster. So the room is watched, and there are two limits above the end:
//
//	room is low    the owner refuses what would fill the disk further (LowSpace)
//	it is short    at half of that, the leader hands leadership to a voter whose
//	               room is not low, and does not stand at once for election
//
// Where no other has more room, the leader goes on: what is under way, cancels and
// deletions still make room.

const (
	// handOverAgain is the pause after leadership was not to be got rid of.
	handOverAgain = 10 * time.Second
	// handOverLimit bounds one hand-over.
	handOverLimit = 2 * time.Second
)

// SpaceLimit is how much room there must be on a disk: both of it.
type SpaceLimit struct {
	Bytes   uint64
	Percent uint64 // of the size of the disk; at most 100
}

// DefaultSpaceLimit is 256 MiB. A share of the disk is for the operator to choose: a
// tenth of a large one is room for years.
func DefaultSpaceLimit() SpaceLimit { return SpaceLimit{Bytes: 256 << 20} }

// of returns the bytes that must be free on a disk of a size.
func (l SpaceLimit) of(size uint64) uint64 { return max(l.Bytes, size/100*l.Percent) }

// SpaceFunc tells how many bytes are free for this process on the disk that holds a
// folder, and how many the disk has; a size of 0 says that it cannot be known.
type SpaceFunc func(dir string) (free, size uint64, err error)

// LowSpace says that the disk of the data folder is nearly full: what is new should
// be refused, and what ends or removes something still be taken.
func (n *Node) LowSpace() bool { return n.lowSpace.Load() }

// look measures the room. A disk that cannot be measured has enough.
func (n *Node) look() {
	free, size, err := n.cfg.Space(n.cfg.DataDir)
	if err != nil {
		if suppressed, ok := n.warned.Allow("space"); ok {
			n.log.Warn("the room on the disk of the data folder is not known", "err", err, "suppressed", suppressed)
		}
		return
	}
	if size == 0 {
		return
	}
	limit := n.cfg.LowSpace.of(size)
	was := n.lowSpace.Load()
	low, short := free < limit || (was && free < limit+limit/16), free < limit/2 // it does not flap at the limit
	n.lowSpace.Store(low)
	if was != low {
		if low {
			n.log.Error("the disk of the data folder is nearly full: new jobs are refused until there is room",
				"data_dir", n.cfg.DataDir, "free_bytes", free, "limit_bytes", limit)
		} else {
			n.log.Info("there is room on the disk of the data folder again", "free_bytes", free)
		}
	}
	n.shortSpace.Store(short)
	n.freeSpace.Store(free)
}

// spaceLoop watches the room until the node closes.
func (n *Node) spaceLoop() {
	tick := time.NewTicker(n.cfg.SpaceInterval)
	defer tick.Stop()
	var rest time.Time // no hand-over before this
	for {
		select {
		case <-n.closing:
			return
		case <-tick.C:
		}
		n.look()
		if !n.shortSpace.Load() || !n.Leading() || time.Now().Before(rest) {
			continue
		}
		switch to, err := n.yield(); {
		case err != nil:
			rest = time.Now().Add(handOverAgain)
			n.log.Error("the disk is all but full, and leadership could not be handed over", "err", err)
		case to != "":
			n.log.Warn("the disk is all but full: handed leadership over", "to", to)
		}
	}
}

// yield hands leadership to the voter with room whose log is longest; it returns ""
// if there is none.
func (n *Node) yield() (to string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	heir, roomy, ok := n.heir(ctx)
	if !ok || !roomy {
		return "", nil
	}
	if err := n.transferTo(ctx, heir); err != nil && n.Leading() {
		return "", fmt.Errorf("handing leadership to %s: %w", heir.ID, err)
	}
	return heir.ID, nil
}

// heir asks the other voters and gives the one to lead next: one with room before one
// without, then the one whose log is longest. ok is false if nobody answers.
func (n *Node) heir(ctx context.Context) (heir Server, roomy, ok bool) {
	others, _ := n.voters("")
	var mu sync.Mutex // guards what is returned, and longest
	var longest uint64
	var asked sync.WaitGroup
	for _, s := range others {
		asked.Go(func() {
			a, err := n.transport.Ask(ctx, s.ID, s.Address, transport.Question{Kind: transport.QuestionSpace})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			room := a.Verdict == transport.AnswerYes
			if !ok || (room && !roomy) || (room == roomy && a.Number > longest) {
				heir, roomy, ok, longest = s, room, true, a.Number
			}
		})
	}
	asked.Wait()
	return heir, roomy, ok
}
