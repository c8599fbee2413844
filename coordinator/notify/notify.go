package notify

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dtask/dtask/fsm"
)

// Run tells whatever is to be told until ctx is done, and gives its cause. All
// that it started has ended then.
func Run(ctx context.Context, cfg Config) error {
	cfg.defaults()
	d := &deliverer{
		cfg: cfg, queue: queue{hosts: make(map[string]*host)},
		ended:    make(chan delivery, maxOnTheirWay),
		recorded: make(chan error, 1),
	}
	transport := d.transport()
	defer transport.CloseIdleConnections()
	d.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	// Deliveries and recording end with ctx, and have room for what they say.
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return d.run(ctx, &group)
}

// deliverer is one term of telling. Its fields belong to the goroutine of run.
type deliverer struct {
	cfg    Config
	client *http.Client
	queue  queue
	next   uint64 // notices below are known

	onTheirWay int
	ended      chan delivery // size: as many as can be on their way

	outcomes  []fsm.Delivery // not in the log yet
	recording int            // how many of them are on their way there
	recordAt  time.Time      // not before
	recorded  chan error     // size 1: there is one call at a time
}

// delivery is a notice on its way, and how it ended.
type delivery struct {
	waiting

	to     *host
	result result
}

// verdict is what follows a delivery. Zero is unset.
type verdict uint8

const (
	delivered verdict = iota + 1
	again             // may succeed later
	hopeless
	gone // told, or pushed out of a full queue
)

// result is how a delivery ended.
type result struct {
	verdict verdict
	why     string        // for the log, without anything secret
	after   time.Duration // not before this, as the receiver asks; 0 = it does not say
}

func (d *deliverer) run(ctx context.Context, group *sync.WaitGroup) error {
	d.load()
	for {
		d.deliver(ctx, group)
		d.record(ctx, group)
		timer := time.NewTimer(d.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-d.cfg.Wake:
			d.load()
		case x := <-d.ended:
			d.end(x)
		case err := <-d.recorded:
			d.noted(ctx, err)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// load takes up the notices that have come since the last call.
func (d *deliverer) load() {
	now := time.Now()
	d.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		for _, n := range st.Notifications(d.next) {
			d.next = n.Number + 1
			to, ok := d.cfg.Hooks.destination(st, n)
			if !ok {
				d.giveUp(n, "", "nothing is known of its destination any more")
				continue
			}
			d.queue.add(hostOf(to), waiting{notice: n, due: now})
		}
	})
}

// hostOf is the name of a destination: host and port, or that of the command,
// which is no host's.
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

// deliver sends what is due as long as places are free.
func (d *deliverer) deliver(ctx context.Context, group *sync.WaitGroup) {
	for d.onTheirWay < maxOnTheirWay {
		h, w, ok := d.queue.next(time.Now())
		if !ok {
			return
		}
		d.onTheirWay++
		group.Go(func() { d.ended <- delivery{waiting: w, to: h, result: d.send(ctx, w.notice)} })
	}
}

// send tells one notice.
func (d *deliverer) send(ctx context.Context, n fsm.Notification) result {
	m, v := d.compose(n)
	if v != 0 {
		return result{verdict: v, why: "what it is about is not kept any more"}
	}
	d.cfg.Totals.Attempts.Add(1)
	if m.url == "" {
		return d.runCommand(ctx, m)
	}
	return d.post(ctx, m)
}

// end takes up how a delivery ended.
func (d *deliverer) end(x delivery) {
	d.onTheirWay--
	d.queue.done(x.to, x.result.verdict == delivered)
	defer d.queue.tidy(x.to)
	n := x.notice
	switch {
	case x.result.verdict == delivered:
		d.cfg.Totals.Delivered.Add(1)
		d.outcomes = append(d.outcomes, fsm.Delivery{Number: n.Number, Delivered: true})
		d.cfg.Logger.Debug("notice delivered", "notice", n.Number, "kind", n.Kind.String(), "job_id", uint64(n.Task.Job), "host", x.to.name)
	case x.result.verdict == gone:
	case x.result.verdict == hopeless:
		d.giveUp(n, x.to.name, x.result.why)
	case d.cfg.Wall().UnixMilli()-n.QueuedMS > giveUpAfter.Milliseconds():
		d.giveUp(n, x.to.name, "tried for a day: "+x.result.why)
	default:
		d.retry(x)
	}
}

// retry waits before the next try. Of a row of failures the first is logged.
func (d *deliverer) retry(x delivery) {
	x.failures++
	wait := max(waits.Delay(x.failures, d.cfg.Seed^x.notice.Number), min(x.result.after, maxRetryAfter))
	x.due = time.Now().Add(wait)
	d.queue.add(x.to.name, x.waiting)
	if x.to.failures == 1 {
		d.cfg.Logger.Warn("notice not delivered, will be tried again", "notice", x.notice.Number, "kind", x.notice.Kind.String(),
			"job_id", uint64(x.notice.Task.Job), "host", x.to.name, "err", x.result.why, "after", wait)
	}
}

func (d *deliverer) giveUp(n fsm.Notification, host, why string) {
	d.cfg.Totals.Failed.Add(1)
	d.outcomes = append(d.outcomes, fsm.Delivery{Number: n.Number})
	d.cfg.Logger.Warn("notice given up", "notice", n.Number, "kind", n.Kind.String(), "job_id", uint64(n.Task.Job), "host", host, "err", why)
}

// record writes outcomes into the log, all that have come since the last call at
// once.
func (d *deliverer) record(ctx context.Context, group *sync.WaitGroup) {
	if d.recording > 0 || len(d.outcomes) == 0 || d.recordAt.After(time.Now()) {
		return
	}
	items := d.outcomes[:min(len(d.outcomes), maxRecorded):min(len(d.outcomes), maxRecorded)]
	d.recording = len(items)
	group.Go(func() { d.recorded <- d.cfg.Recorder.RecordDelivered(ctx, items) })
}

// noted takes up the answer. What could not be recorded is tried again: the
// sequencer was busy, or the term is about to end.
func (d *deliverer) noted(ctx context.Context, err error) {
	if err != nil {
		d.recording, d.recordAt = 0, time.Now().Add(recordAgain)
		if ctx.Err() == nil {
			d.cfg.Logger.WarnContext(ctx, "notices could not be recorded as told, will be tried again", "err", err)
		}
		return
	}
	d.outcomes = d.outcomes[d.recording:]
	d.recording = 0
}

// untilNext is how long nothing happens by itself.
func (d *deliverer) untilNext() time.Duration {
	const long = time.Hour // a timer too many is no harm
	wait := long
	if at, ok := d.queue.soonest(); ok && d.onTheirWay < maxOnTheirWay {
		wait = min(wait, time.Until(at))
	}
	if len(d.outcomes) > 0 && d.recording == 0 {
		wait = min(wait, time.Until(d.recordAt))
	}
	return max(wait, 0)
}
