package sequencer_test

import (
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// firstOriginSeed is the first seed whose jobs have queues and owners, and are planned. Earlier seeds
// give the runs that they gave before, by which planted bugs are caught.
const firstOriginSeed = 2000

// hasOrigins reports whether jobs have queues and owners in the run of a seed.
func hasOrigins(seed uint64) bool { return seed >= firstOriginSeed && seed%4 < 2 }

// simOrigins gives jobs queues and owners, and adds crowds: jobs with more tasks than workers have
// slots. It draws from a generator of its own.
type simOrigins struct {
	c     *sim
	rng   *rand.Rand
	first int // number of the first crowd; jobs from there on are crowds
}

func newSimOrigins(c *sim) *simOrigins {
	x := &simOrigins{c: c, rng: rand.New(rand.NewPCG(c.seed, 5)), first: len(c.jobs)}
	for range x.rng.IntN(4) {
		c.jobs = append(c.jobs, newSimJob(c, len(c.jobs)))
	}
	return x
}

// set gives a job an owner, and a queue if the cluster has the level.
func (x *simOrigins) set(h *dtaskv1.JobHeader) {
	if x == nil {
		return
	}
	h.Owner = []string{"alice", "bob"}[x.rng.IntN(2)]
	if name := simQueueNames[x.rng.IntN(len(simQueueNames))]; x.c.queues.raised && name != fsm.DefaultQueue {
		h.Queue = name
	}
}

// isCrowd reports whether a job is a crowd.
func (x *simOrigins) isCrowd(number int) bool { return x != nil && number >= x.first }

// crowd returns a job of tasks that need nothing but a slot, of some priorities.
func (x *simOrigins) crowd(number int) (sub sequencer.Submission) {
	h := &dtaskv1.JobHeader{Name: fmt.Sprintf("job%d", number), OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE}
	x.set(h)
	for range 1 + x.rng.IntN(3) {
		h.Policies = append(h.Policies, &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 3000, Priority: dtaskv1.Priority(1 + x.rng.IntN(4))})
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
	if err != nil {
		x.c.fail("%v", err)
	}
	sub = sequencer.Submission{Key: h.GetName(), Header: raw, Total: 20 + x.rng.Uint32N(60)}
	copy(sub.Digest[:], h.GetName())
	b := fsm.NewChunkBuilder(0)
	for i := range sub.Total {
		b.Add(fmt.Sprintf("t%d", i), uint32(x.rng.IntN(len(h.GetPolicies()))), nil, nil)
	}
	sub.Chunks = []*fsm.Chunk{b.Chunk()}
	sub.Sum = sub.Chunks[0].Sum(sub.Sum)
	return sub
}
