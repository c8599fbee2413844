package mutants

var notifyTests = Checker{Package: "./coordinator/notify", Run: "."}

// notificationMutants returns the mistakes in the delivery of notifications.
func notificationMutants() []Mutant {
	return []Mutant{
		{
			Name:   "finished-jobs-queue-no-notification",
			Edits:  []Edit{{"fsm/outcome.go", "\ts.notifyEnd(j, fx)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "Notif"}, twins},
		},
		{
			Name:   "delivered-notifications-stay-queued",
			Edits:  []Edit{{"fsm/notifications.go", "\tq.remove(at)\n\treturn Accepted\n", "\treturn Accepted\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "Notif"}, twins},
		},
		{
			Name:   "snapshots-omit-notifications",
			Edits:  []Edit{{"fsm/snapshot.go", "\tf.notifications(s)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "Notif"}, snapshots},
		},
		{
			Name:   "dead-letters-queue-no-notification",
			Edits:  []Edit{{"coordinator/sequencer/sequencer.go", "\tnotify(b)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Notification"}},
		},
		{
			Name:   "jobs-expire-before-their-notification",
			Edits:  []Edit{{"coordinator/sequencer/retention.go", `if (a.pending[j.id] ||`, `if (a.pending[0] ||`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Kept"}},
		},
		{
			Name:   "failed-responses-count-as-delivered",
			Edits:  []Edit{{"coordinator/notify/webhook.go", `case code >= 200 && code < 300:`, `case code >= 200 && code != 400:`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "redirects-are-followed",
			Edits:  []Edit{{"coordinator/notify/webhook.go", `return http.ErrUseLastResponse`, `return nil`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "names-and-redirects-reach-private-addresses",
			Edits:  []Edit{{"coordinator/notify/addresses.go", `(&net.Dialer{ControlContext: c.control})`, `new(net.Dialer)`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "jobs-use-connections-of-the-operators-webhooks",
			Edits:  []Edit{{"coordinator/notify/webhook.go", "\t\treturn &c.jobs\n", "\t\treturn &c.operator\n"}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "webhooks-of-jobs-use-a-proxy",
			Edits:  []Edit{{"coordinator/notify/webhook.go", `newClient(c.dialJob, nil)`, `newClient(c.dialJob, c.Proxy)`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "nat64-reaches-private-addresses",
			Edits:  []Edit{{"coordinator/notify/addresses.go", `if nat64.Contains(a) {`, `if nat64.Contains(a) && a != nat64.Addr() { return "" }; if nat64.Contains(a) {`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "private-webhooks-are-accepted-at-submission",
			Edits:  []Edit{{"coordinator/parts.go", "\t\tCheckWebhook: r.notifier.addresses.CheckURL,\n", ""}},
			Caught: []Checker{{Package: "./coordinator", Run: "PrivateAddress"}},
		},
		{
			Name:   "redeliveries-have-new-ids",
			Edits:  []Edit{{"coordinator/notify/webhook.go", `"Webhook-Id", m.id)`, `"Webhook-Id", m.id+stamp)`}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "one-receiver-takes-all-deliveries",
			Edits:  []Edit{{"coordinator/notify/queue.go", "\t\tif x.busy || len(x.pending) == 0", "\t\tif len(x.pending) == 0"}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "signatures-omit-the-body",
			Edits:  []Edit{{"coordinator/notify/secret.go", "\tmac.Write(body)\n", ""}},
			Caught: []Checker{notifyTests},
		},
		{
			Name:   "commands-leave-processes-running",
			Edits:  []Edit{{"internal/hook/hook.go", "\t\t_ = killGroup(cmd) // processes that it left behind\n", ""}},
			Caught: []Checker{{Package: "./internal/hook", Run: "TestProcessesThatAProgramLeaves"}},
		},
	}
}
