package simulation_test

import (
	"time"
)

// fault is an injected fault; kind is its number in the catalog of
// docs/testing.md. To add one, write a function and add it to the table.
type fault struct {
	kind   string
	weight int
	do     func(*cluster)
}

var faults = []fault{
	{"F1", 14, func(c *cluster) { c.withLeader(func(r *replica) { r.restart(c.likely()) }) }},
	{"F2", 4, func(c *cluster) { c.withReplica(func(r *replica) { r.restart(c.likely()) }) }},
	{"F8", 10, func(c *cluster) { c.withLeader((*replica).restartOrderly) }},
	{"F4", 1, func(c *cluster) { c.killAll(0) }},
	{"F66", 6, func(c *cluster) { c.withLeader(c.killInWrite) }},
	{"F67", 4, func(c *cluster) { c.withReplica(c.killInWrite) }},
	{"F68", 4, func(c *cluster) { c.withLeader(c.killInVote) }},
	{"F69", 2, func(c *cluster) { c.killAll(5 * time.Second) }},
	{"F21", 10, func(c *cluster) { c.withLeader(func(r *replica) { c.isolateFor(r) }) }},
	{"F22", 6, (*cluster).cutFromFollowers},
	{"F23", 4, func(c *cluster) { c.oneWay(true) }},
	{"F24", 4, func(c *cluster) { c.oneWay(false) }},
	{"F26", 3, (*cluster).bridge},
	{"F29", 6, func(c *cluster) { c.withLeader(func(r *replica) { c.net.reset(r.address) }) }},
	{"F30", 5, (*cluster).slowNetwork},
	{"F33", 2, (*cluster).flap},
	{"F34", 4, (*cluster).cutWorker},
	{"F12", 8, func(c *cluster) { c.withWorker(func(w *workerHost) { w.restart(c.likely()) }) }},
	{"F15", 2, (*cluster).killBoth},
	{"F38", 5, (*cluster).hangDisk},
	{"F40", 6, func(c *cluster) { c.withReplica(func(r *replica) { r.disk.set(true, false) }) }},
	{"F45", 5, (*cluster).flipBit},
	{"F56", 1, (*cluster).rollingRestart},
}

// nemesis causes storms, with calms between them, until over is closed, and
// then ends all faults.
func (c *cluster) nemesis(over <-chan struct{}) {
	for {
		storm := time.NewTimer(c.storm())
		c.calm.Store(false)
		c.rage(over, storm.C)
		c.heal()
		c.calm.Store(true)
		if !c.pause(over, nil, c.lull()) {
			return
		}
	}
}

// rage injects faults until either channel is closed.
func (c *cluster) rage(over <-chan struct{}, end <-chan time.Time) {
	sum := 0
	for _, f := range faults {
		sum += f.weight
	}
	for c.pause(over, end, c.upTo(c.every*2)) {
		c.revive()
		n := c.rng.IntN(sum)
		for _, f := range faults {
			if n -= f.weight; n < 0 {
				c.fired[f.kind]++
				f.do(c)
				break
			}
		}
	}
}

func (c *cluster) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

func (c *cluster) likely() bool { return c.rng.IntN(2) == 0 }

func (c *cluster) pause(over <-chan struct{}, end <-chan time.Time, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-end:
		return false
	case <-over:
		return false
	}
}

// hold returns the duration of a fault, close to the timeouts that matter.
func (c *cluster) hold() { <-time.After(c.pace.Scale(200*time.Millisecond + c.upTo(5*time.Second))) }

// revive restarts replicas that stopped themselves.
func (c *cluster) revive() {
	for _, r := range c.replicas {
		if r.ended() {
			r.disk.set(false, false)
			r.start()
		}
	}
}

// heal ends all faults.
func (c *cluster) heal() {
	for _, a := range c.everybody() {
		c.net.setDelay(a, 0)
		for _, b := range c.everybody() {
			c.net.setCut(a, b, false)
		}
	}
	for _, r := range c.replicas {
		r.disk.set(false, false)
	}
	c.revive()
}

func (c *cluster) withLeader(do func(*replica)) {
	if r := c.leader(); r != nil && !r.ended() {
		do(r)
	}
}

func (c *cluster) withReplica(do func(*replica)) {
	if r := c.replicas[c.rng.IntN(replicaCount)]; !r.ended() {
		do(r)
	}
}

func (c *cluster) withWorker(do func(*workerHost)) { do(c.workers[c.rng.IntN(len(c.workers))]) }

func (r *replica) restart(reset bool) {
	r.c.kill(reset, r)
	<-time.After(r.c.pace.Scale(r.c.upTo(3 * time.Second)))
	r.start()
}

func (r *replica) restartOrderly() {
	r.stop()
	<-time.After(r.c.pace.Scale(r.c.upTo(2 * time.Second)))
	r.start()
}

func (w *workerHost) restart(reset bool) {
	w.kill(reset)
	<-time.After(w.c.pace.Scale(w.c.upTo(3 * time.Second)))
	w.start()
}

// killAll kills all replicas at the same instant. They restart together, or one after
// another, each up to the given time after the one before.
func (c *cluster) killAll(apart time.Duration) {
	c.kill(true, c.replicas...)
	for i, k := range c.rng.Perm(replicaCount) {
		if i > 0 && apart > 0 {
			<-time.After(c.pace.Scale(c.upTo(apart)))
		}
		c.replicas[k].start()
	}
}

// killInWrite kills a replica while its disk writes entries: a leader has sent them to
// the others already, and those that arrive meanwhile are in memory only.
func (c *cluster) killInWrite(r *replica) {
	s, end := r.disk.stall(entryWrites)
	defer end()
	if s.await(c.pace.Scale(time.Second)) {
		<-time.After(c.upTo(200 * time.Millisecond))
	}
	r.restart(c.likely())
}

// killInVote kills the leader, and another replica while its disk writes its term or
// its vote.
func (c *cluster) killInVote(l *replica) {
	r := c.replicas[c.rng.IntN(replicaCount)]
	if r == l || r.ended() {
		return
	}
	s, end := r.disk.stall(stableWrites)
	defer end()
	c.kill(c.likely(), l)
	if s.await(c.pace.Scale(5 * time.Second)) {
		c.kill(c.likely(), r)
		r.start()
	}
	l.start()
}

func (c *cluster) isolateFor(r *replica) {
	r.isolate(true)
	c.hold()
	r.isolate(false)
}

// cutFromFollowers partitions the leader from the followers only.
func (c *cluster) cutFromFollowers() {
	c.withLeader(func(l *replica) {
		for _, cut := range []bool{true, false} {
			for _, r := range c.replicas {
				if r != l {
					c.net.setCut(l.address, r.address, cut)
					c.net.setCut(r.address, l.address, cut)
				}
			}
			if cut {
				c.hold()
			}
		}
	})
}

// oneWay cuts one direction between the leader and the others.
func (c *cluster) oneWay(in bool) {
	c.withLeader(func(l *replica) {
		for _, cut := range []bool{true, false} {
			for _, r := range c.replicas {
				switch {
				case r == l:
				case in:
					c.net.setCut(r.address, l.address, cut)
				default:
					c.net.setCut(l.address, r.address, cut)
				}
			}
			if cut {
				c.hold()
			}
		}
	})
}

// bridge cuts two of the three from each other.
func (c *cluster) bridge() {
	k := c.rng.IntN(replicaCount)
	a, b := c.replicas[k], c.replicas[(k+1)%replicaCount]
	for _, cut := range []bool{true, false} {
		c.net.setCut(a.address, b.address, cut)
		c.net.setCut(b.address, a.address, cut)
		if cut {
			c.hold()
		}
	}
}

func (c *cluster) slowNetwork() {
	for _, r := range c.replicas {
		c.net.setDelay(r.address, c.upTo(150*time.Millisecond))
	}
	c.hold()
	for _, r := range c.replicas {
		c.net.setDelay(r.address, 0)
	}
}

func (c *cluster) flap() {
	c.withReplica(func(r *replica) {
		for range 10 {
			r.isolate(true)
			<-time.After(c.pace.Scale(100 * time.Millisecond))
			r.isolate(false)
			<-time.After(c.pace.Scale(100 * time.Millisecond))
		}
	})
}

func (c *cluster) cutWorker() {
	c.withWorker(func(w *workerHost) {
		w.isolate(true)
		c.hold()
		w.isolate(false)
	})
}

func (c *cluster) killBoth() {
	w := c.workers[c.rng.IntN(len(c.workers))]
	w.isolate(true)
	c.withLeader(func(r *replica) { r.restart(true) })
	w.restart(true)
}

// hangDisk lets writes hang for a time that the replica may not survive.
func (c *cluster) hangDisk() {
	do := func(r *replica) {
		_, end := r.disk.stall(allWrites)
		<-time.After(c.pace.Scale(500*time.Millisecond + c.upTo(3*time.Second)))
		end()
	}
	if c.likely() {
		c.withLeader(do)
	} else {
		c.withReplica(do)
	}
}

// flipBit damages the next entry that a replica reads, and restarts the replica
// so that it reads one.
func (c *cluster) flipBit() {
	c.withReplica(func(r *replica) {
		c.kill(true, r)
		r.disk.set(false, true)
		r.start()
	})
}

func (c *cluster) rollingRestart() {
	for _, r := range c.replicas {
		if !r.ended() {
			r.restartOrderly()
		}
	}
}
