package simulation_test

import (
	"slices"
	"time"
)

// fault is an injected fault; kind is its number in the catalog of
// docs/testing.md. To add one, write a function and add it to the table. It reports
// whether it found something to break.
type fault struct {
	kind   string
	weight int
	do     func(*cluster) bool
}

var faults = []fault{
	{"F1", 14, func(c *cluster) bool { return c.withLeader(func(r *replica) { r.restart(c.likely()) }) }},
	{"F2", 4, func(c *cluster) bool { return c.withReplica(func(r *replica) { r.restart(c.likely()) }) }},
	{"F8", 10, func(c *cluster) bool { return c.withLeader((*replica).restartOrderly) }},
	{"F4", 1, always(func(c *cluster) { c.killAll(0) })},
	{"F66", 6, func(c *cluster) bool { return c.killInWrite(c.leader()) }},
	{"F67", 4, func(c *cluster) bool { return c.killInWrite(c.anyReplica()) }},
	{"F68", 4, (*cluster).killInVote},
	{"F69", 2, always(func(c *cluster) { c.killAll(5 * time.Second) })},
	{"F21", 10, func(c *cluster) bool { return c.withLeader(c.isolateFor) }},
	{"F22", 6, (*cluster).cutFromFollowers},
	{"F23", 4, func(c *cluster) bool { return c.oneWay(true) }},
	{"F24", 4, func(c *cluster) bool { return c.oneWay(false) }},
	{"F26", 3, always((*cluster).bridge)},
	{"F29", 6, func(c *cluster) bool { return c.withLeader(func(r *replica) { c.net.reset(r.address) }) }},
	{"F30", 5, always((*cluster).slowNetwork)},
	{"F33", 2, (*cluster).flap},
	{"F34", 4, always((*cluster).cutWorker)},
	{"F12", 8, always(func(c *cluster) { c.anyWorker().restart(c.likely()) })},
	{"F15", 2, (*cluster).killBoth},
	{"F38", 5, (*cluster).hangDisk},
	{"F40", 6, func(c *cluster) bool { return c.withReplica(func(r *replica) { r.disk.set(true, false) }) }},
	{"F45", 5, (*cluster).flipBit},
	{"F56", 1, always((*cluster).rollingRestart)},
}

// always makes a fault of a function that always finds something to break.
func always(do func(*cluster)) func(*cluster) bool {
	return func(c *cluster) bool { do(c); return true }
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
				if f.do(c) {
					c.fired[f.kind]++
				}
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

// withLeader does something to the leader's replica, and reports whether one leads.
func (c *cluster) withLeader(do func(*replica)) bool {
	r := c.leader()
	if r == nil || r.ended() {
		return false
	}
	do(r)
	return true
}

// withReplica does something to any replica, and reports whether it runs.
func (c *cluster) withReplica(do func(*replica)) bool {
	r := c.anyReplica()
	if r.ended() {
		return false
	}
	do(r)
	return true
}

func (c *cluster) anyReplica() *replica { return c.replicas[c.rng.IntN(replicaCount)] }

func (c *cluster) anyWorker() *workerHost { return c.workers[c.rng.IntN(len(c.workers))] }

func (r *replica) restart(reset bool) {
	r.c.killBusy(reset, r)
	<-time.After(r.c.pace.Scale(r.c.upTo(3 * time.Second)))
	r.start()
}

func (r *replica) restartOrderly() {
	r.stop()
	<-time.After(r.c.pace.Scale(r.c.upTo(2 * time.Second)))
	r.start()
}

// killBusy is kill; every other time, the replicas may be writing entries at that
// instant. Without that they never are, because writes take no virtual time.
func (c *cluster) killBusy(reset bool, some ...*replica) {
	var ends []func()
	if c.likely() {
		for _, r := range some {
			_, end := r.disk.stall(entryWrites)
			ends = append(ends, end)
		}
		<-time.After(c.pace.Scale(c.upTo(200 * time.Millisecond)))
	}
	c.kill(reset, some...)
	for _, end := range ends {
		end()
	}
}

func (w *workerHost) restart(reset bool) {
	w.kill(reset)
	<-time.After(w.c.pace.Scale(w.c.upTo(3 * time.Second)))
	w.start()
}

// killAll kills all replicas at the same instant. They restart together, or one after
// another, each up to the given time after the one before.
func (c *cluster) killAll(apart time.Duration) {
	c.killBusy(true, c.replicas...)
	for i, k := range c.rng.Perm(replicaCount) {
		if i > 0 && apart > 0 {
			<-time.After(c.pace.Scale(c.upTo(apart)))
		}
		c.replicas[k].start()
	}
}

// killInWrite kills a replica while its disk writes entries: a leader has sent them to
// the others already, and those that arrive meanwhile are in memory only. It reports
// whether there was a write.
func (c *cluster) killInWrite(r *replica) (struck bool) {
	if r == nil || r.ended() {
		return false
	}
	s, end := r.disk.stall(entryWrites)
	defer end()
	if struck = s.await(c.pace.Scale(time.Second)); struck {
		<-time.After(c.upTo(200 * time.Millisecond))
	}
	c.kill(c.likely(), r)
	<-time.After(c.pace.Scale(c.upTo(3 * time.Second)))
	r.start()
	return struck
}

// killInVote kills the leader, and another replica while its disk writes the new term,
// or has written the term and writes its vote. It reports whether there was such a
// write.
func (c *cluster) killInVote() (struck bool) {
	l := c.leader()
	if l == nil || l.ended() {
		return false
	}
	others := slices.DeleteFunc(slices.Clone(c.replicas), func(r *replica) bool { return r == l || r.ended() })
	if len(others) == 0 {
		return false
	}
	r := others[c.rng.IntN(len(others))]
	which := termWrites
	if c.likely() {
		which = voteWrites
	}
	s, end := r.disk.stall(which)
	defer end()
	c.kill(c.likely(), l)
	if struck = s.await(c.pace.Scale(5 * time.Second)); struck {
		c.kill(c.likely(), r)
		r.start()
	}
	l.start()
	return struck
}

func (c *cluster) isolateFor(r *replica) {
	r.isolate(true)
	c.hold()
	r.isolate(false)
}

// cutFromFollowers partitions the leader from the followers only.
func (c *cluster) cutFromFollowers() bool {
	return c.withLeader(func(l *replica) {
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
func (c *cluster) oneWay(in bool) bool {
	return c.withLeader(func(l *replica) {
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

func (c *cluster) flap() bool {
	return c.withReplica(func(r *replica) {
		for range 10 {
			r.isolate(true)
			<-time.After(c.pace.Scale(100 * time.Millisecond))
			r.isolate(false)
			<-time.After(c.pace.Scale(100 * time.Millisecond))
		}
	})
}

func (c *cluster) cutWorker() {
	w := c.anyWorker()
	w.isolate(true)
	c.hold()
	w.isolate(false)
}

func (c *cluster) killBoth() bool {
	w := c.anyWorker()
	w.isolate(true)
	led := c.withLeader(func(r *replica) { r.restart(true) })
	w.restart(true)
	return led
}

// hangDisk lets writes hang for a time that the replica may not survive.
func (c *cluster) hangDisk() bool {
	do := func(r *replica) {
		_, end := r.disk.stall(allWrites)
		<-time.After(c.pace.Scale(500*time.Millisecond + c.upTo(3*time.Second)))
		end()
	}
	if c.likely() {
		return c.withLeader(do)
	}
	return c.withReplica(do)
}

// flipBit damages the next entry that a replica reads, and restarts the replica
// so that it reads one.
func (c *cluster) flipBit() bool {
	return c.withReplica(func(r *replica) {
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
