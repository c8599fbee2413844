package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/dtask/dtask/test/cluster"
)

const (
	natsServer = "nats-server"
	callers    = 256
)

// singles measures jobs of one task, each of which is a call of its own: what a message
// is to a queue. If nats-server is installed, it measures NATS JetStream beside it, with
// as many replicas and each write synced. Both have the machine to themselves in turn.
func singles(ctx context.Context, b *bench) error {
	beside, err := b.jetStream(ctx)
	if err != nil {
		return err
	}
	jobs := b.tasks / 5
	var own []round
	var other []float64
	for range b.rounds {
		r, err := b.single(ctx, jobs)
		if err != nil {
			return err
		}
		own = append(own, r)
		if beside == nil {
			continue
		}
		rate, err := beside.measure(ctx, jobs)
		if err != nil {
			return err
		}
		other = append(other, rate)
	}
	setting, against := fmt.Sprintf("%d of %d B, ", jobs, pendingPayload), applyYardstick
	if beside != nil {
		against = beside.version
		b.table.add(against, "messages/s", setting+"from the first publication until all are acknowledged by the consumer; 3 servers, a work queue with 3 replicas, sync_interval: always", other...)
	}
	what := fmt.Sprintf("jobs of one task, one call each, %d callers", callers)
	b.table.compare(what, "jobs/s", setting+b.usual(), against, values(own, func(r round) float64 { return r.JobsPerSecond })...)
	b.costs(what, own)
	return nil
}

// single measures one round on a cluster of its own, after a small one.
func (b *bench) single(ctx context.Context, jobs int) (r round, err error) {
	args := []string{"--tasks-per-job", "1", "--clients", strconv.Itoa(callers), "--payload", strconv.Itoa(pendingPayload)}
	err = with(ctx, b.usualCluster(), func(c *cluster.Cluster) (err error) {
		if _, err = oneRound(ctx, c, max(1, jobs/10), args); err == nil {
			r, err = oneRound(ctx, c, jobs, args)
		}
		return err
	})
	return r, err
}

// A jetStream measures NATS JetStream.
type jetStream struct {
	server  string // path of nats-server
	program string // path of test/bench/jetstream
	version string
}

// jetStream prepares the measurement; nil if nats-server is not installed.
func (b *bench) jetStream(ctx context.Context) (*jetStream, error) {
	path, err := exec.LookPath(natsServer)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // most machines have none
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its version: %w", natsServer, err)
	}
	program, err := b.tools.need(ctx, "jetstream")
	if err != nil {
		return nil, err
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(version)), ": ")
	return &jetStream{server: path, program: program, version: "NATS JetStream " + number}, nil
}

// measure returns messages per second, from the first publication until all of them
// have been acknowledged by the consumer.
func (j *jetStream) measure(ctx context.Context, messages int) (perSecond float64, err error) {
	var took struct{ Seconds float64 }
	err = into(ctx, &took, j.program, j.server, strconv.Itoa(messages), strconv.Itoa(callers), strconv.Itoa(pendingPayload))
	return float64(messages) / took.Seconds, err
}
