// Command jetstream measures NATS JetStream as a queue of jobs, for the comparison in
// test/bench: three servers on loopback, a work queue with three replicas that syncs each
// write, callers that publish one message after another and wait for each
// acknowledgment, and one consumer that acknowledges each message.
//
// It is a module of its own, so that dtask does not depend on NATS:
//
//	jetstream SERVER JOBS CALLERS BYTES
//
// SERVER is the path of nats-server. It prints the seconds from the first publication
// until the last message was acknowledged by the consumer, as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream   = "jobs"
	subject  = "jobs.new"
	consumer = "workers"

	// limit is a guard against hanging.
	limit = 10 * time.Minute
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: jetstream SERVER JOBS CALLERS BYTES")
	}
	var sizes [3]int
	for i, s := range os.Args[2:] {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			log.Fatalf("%q is not a positive number", s)
		}
		sizes[i] = n
	}
	took, err := measure(os.Args[1], sizes[0], sizes[1], sizes[2])
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"seconds": took.Seconds()}); err != nil {
		log.Fatal(err)
	}
}

// measure starts the servers, runs the load and stops them.
func measure(server string, jobs, callers, bytes int) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s, err := start(server)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	// Publishers and the consumer use one server each, as two programs would.
	publisher, err := s.connect(ctx, 0)
	if err != nil {
		return 0, err
	}
	if err := createStream(ctx, publisher); err != nil {
		return 0, err
	}
	worker, err := s.connect(ctx, 1)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	done, stop, err := consume(ctx, worker, jobs)
	if err != nil {
		return 0, err
	}
	defer stop()
	if err := publish(ctx, publisher, jobs, callers, bytes); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return 0, fmt.Errorf("consuming: %w", ctx.Err())
	}
	// The last acknowledgment must have been written.
	if err := worker.Conn().FlushWithContext(ctx); err != nil {
		return 0, fmt.Errorf("acknowledging: %w", err)
	}
	return time.Since(began), nil
}

// createStream creates the work queue and its consumer, once the servers can.
func createStream(ctx context.Context, js jetstream.JetStream) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := js.CreateOrUpdateStream(attempt, jetstream.StreamConfig{
			Name: stream, Subjects: []string{subject}, Replicas: 3, Retention: jetstream.WorkQueuePolicy,
		})
		if err == nil {
			_, err = js.CreateOrUpdateConsumer(attempt, stream, jetstream.ConsumerConfig{
				Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4096,
			})
		}
		cancel()
		if err == nil {
			return nil
		}
		if pause(ctx) != nil {
			return fmt.Errorf("creating stream: %w", err)
		}
	}
}

// consume acknowledges messages; done is closed after the last one.
func consume(ctx context.Context, js jetstream.JetStream, jobs int) (done chan struct{}, stop func(), err error) {
	c, err := js.Consumer(ctx, stream, consumer)
	if err != nil {
		return nil, nil, fmt.Errorf("opening consumer: %w", err)
	}
	done = make(chan struct{})
	var count atomic.Int64
	running, err := c.Consume(func(m jetstream.Msg) {
		if err := m.Ack(); err != nil {
			log.Fatalf("acknowledging: %v", err)
		}
		if count.Add(1) == int64(jobs) {
			close(done)
		}
	}, jetstream.PullMaxMessages(2048))
	if err != nil {
		return nil, nil, fmt.Errorf("consuming: %w", err)
	}
	return done, running.Stop, nil
}

// publish publishes all jobs. Each caller waits for the acknowledgment of one before
// the next.
func publish(ctx context.Context, js jetstream.JetStream, jobs, callers, bytes int) error {
	payload := make([]byte, bytes)
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			for errs[i] == nil && next.Add(1) <= int64(jobs) {
				_, errs[i] = js.Publish(ctx, subject, payload)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	return nil
}

// pause waits before another attempt.
func pause(ctx context.Context) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
