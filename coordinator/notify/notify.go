package notify

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Run delivers notifications until ctx is done, and returns its cause. All
// deliveries have finished when it returns.
func Run(ctx context.Context, cfg Config) error {
	cfg.defaults()
	d := &deliverer{
		cfg: cfg, queue: queue{hosts: make(map[string]*host)},
		finished: make(chan delivery, maxInFlight),
		recorded: make(chan error, 1),
	}
	d.clients = newClients(&d.cfg)
	defer d.clients.close()
	// Goroutines of the group end with ctx. They never block on their channel,
	// whose size is the number of goroutines that send.
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return d.run(ctx, &group)
}

// A deliverer delivers notifications for one term. Its fields belong to the
// goroutine of run.
type deliverer struct {
	cfg        Config
	clients    *clients
	queue      queue
	nextNumber uint64 // lower notifications are loaded

	inFlight int
	finished chan delivery // size maxInFlight

	unrecorded      []fsm.Delivery // outcomes that are not in the log
	recording       int            // how many of them the current call records; 0 = no call
	recordNotBefore time.Time
	recorded        chan error // size 1: there is at most one call
}

// A delivery is one attempt to deliver a notification, and its result.
type delivery struct {
	pending

	host   *host
	result result
}

// A result is the result of a delivery.
type result struct {
	kind       resultKind
	reason     string        // for the log, without secrets
	retryAfter time.Duration // minimum delay that the receiver requests; 0 = none
}

// A resultKind says what follows a delivery. Zero is unset.
type resultKind uint8

const (
	resultDelivered resultKind = iota + 1
	resultRetry
	resultFailed
	resultGone // delivered earlier, or dropped because the queue was full
)

func (d *deliverer) run(ctx context.Context, group *sync.WaitGroup) error {
	d.load()
	for {
		d.deliver(ctx, group)
		d.record(ctx, group)
		timer := time.NewTimer(d.idleTime())
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-d.cfg.Wake:
			d.load()
		case x := <-d.finished:
			d.finish(x)
		case err := <-d.recorded:
			d.recordDone(ctx, err)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// load queues the notifications that were committed since the last call.
func (d *deliverer) load() {
	now := time.Now()
	d.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		for _, n := range st.Notifications(d.nextNumber) {
			d.nextNumber = n.Number + 1
			to, ok := d.cfg.Hooks.destination(st, n)
			if !ok {
				d.drop(n, "", "unknown destination")
				continue
			}
			d.queue.add(hostOf(to), pending{notification: n, due: now})
		}
	})
}

// hostOf returns the host and port of a URL. An empty URL stands for the command,
// whose name is no valid host.
func hostOf(to string) string {
	if to == "" {
		return "command:"
	}
	u, err := url.Parse(to)
	if err != nil {
		return to
	}
	return strings.ToLower(u.Host)
}

// deliver starts the deliveries that are due, up to maxInFlight.
func (d *deliverer) deliver(ctx context.Context, group *sync.WaitGroup) {
	for d.inFlight < maxInFlight {
		h, p, ok := d.queue.next(time.Now())
		if !ok {
			return
		}
		d.inFlight++
		group.Go(func() { d.finished <- delivery{pending: p, host: h, result: d.send(ctx, p.notification)} })
	}
}

// send delivers one notification.
func (d *deliverer) send(ctx context.Context, n fsm.Notification) result {
	m, kind := d.compose(n)
	if kind != 0 {
		return result{kind: kind, reason: "unknown job or destination"}
	}
	d.cfg.Totals.Attempts.Add(1)
	if m.url == "" {
		return d.runCommand(ctx, m)
	}
	return d.post(ctx, m)
}

// finish handles the result of a delivery.
func (d *deliverer) finish(x delivery) {
	d.inFlight--
	d.queue.release(x.host, x.result.kind == resultDelivered)
	defer d.queue.removeIdle(x.host)
	n := x.notification
	switch {
	case x.result.kind == resultDelivered:
		d.cfg.Totals.Delivered.Add(1)
		d.unrecorded = append(d.unrecorded, fsm.Delivery{Number: n.Number, Delivered: true})
		d.logger(n, x.host.name).Debug("notification delivered")
	case x.result.kind == resultGone:
	case x.result.kind == resultFailed:
		d.drop(n, x.host.name, x.result.reason)
	case d.cfg.Wall().UnixMilli()-n.QueuedMS > maxAge.Milliseconds():
		d.drop(n, x.host.name, "not delivered within 24 h: "+x.result.reason)
	default:
		d.retry(x)
	}
}

// retry schedules the next delivery. It logs only the first of several failures in
// a row.
func (d *deliverer) retry(x delivery) {
	x.failures++
	delay := retryPolicy.Delay(x.failures, d.cfg.Seed^x.notification.Number)
	delay = max(delay, min(x.result.retryAfter, maxRetryAfter))
	x.due = time.Now().Add(delay)
	d.queue.add(x.host.name, x.pending)
	if x.host.failures == 1 {
		d.logger(x.notification, x.host.name).Warn("notification not delivered, retrying", "err", x.result.reason, "delay", delay)
	}
}

// drop ends a notification without a delivery.
func (d *deliverer) drop(n fsm.Notification, host, reason string) {
	d.cfg.Totals.Dropped.Add(1)
	d.unrecorded = append(d.unrecorded, fsm.Delivery{Number: n.Number})
	d.logger(n, host).Warn("notification dropped", "err", reason)
}

// logger returns the logger for a notification.
func (d *deliverer) logger(n fsm.Notification, host string) *slog.Logger {
	return d.cfg.Logger.With("notification", n.Number, "kind", n.Kind.String(), "job_id", uint64(n.Task.Job), "host", host)
}

// record records the outcomes since the last call in the log.
func (d *deliverer) record(ctx context.Context, group *sync.WaitGroup) {
	if d.recording > 0 || len(d.unrecorded) == 0 || d.recordNotBefore.After(time.Now()) {
		return
	}
	d.recording = min(len(d.unrecorded), maxRecordItems)
	items := d.unrecorded[:d.recording:d.recording]
	group.Go(func() { d.recorded <- d.cfg.Recorder.RecordDelivered(ctx, items) })
}

// recordDone handles the result of recording. It retries after an error: the
// sequencer was busy, or the term is about to end.
func (d *deliverer) recordDone(ctx context.Context, err error) {
	if err != nil {
		d.recording, d.recordNotBefore = 0, time.Now().Add(recordRetryDelay)
		if ctx.Err() == nil {
			d.cfg.Logger.WarnContext(ctx, "notifications not recorded, retrying", "err", err)
		}
		return
	}
	d.unrecorded = d.unrecorded[d.recording:]
	d.recording = 0
}

// idleTime returns how long run may wait for an event.
func (d *deliverer) idleTime() time.Duration {
	wait := time.Hour
	if at, ok := d.queue.nextDue(); ok && d.inFlight < maxInFlight {
		wait = min(wait, time.Until(at))
	}
	if len(d.unrecorded) > 0 && d.recording == 0 {
		wait = min(wait, time.Until(d.recordNotBefore))
	}
	return max(wait, 0)
}
