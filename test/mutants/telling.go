package mutants

var notified = Checker{Package: "./coordinator/notify", Run: "."}

// inTelling are mistakes in what others are told.
func inTelling() []Mutant {
	return []Mutant{
		{
			Name:   "ends-of-jobs-leave-no-notice",
			Edits:  []Edit{{"fsm/transition.go", "\ts.noticeEnd(j, fx)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "Notice|Told"}, twins},
		},
		{
			Name:   "notices-that-were-told-stay",
			Edits:  []Edit{{"fsm/notices.go", "\tq.remove(at)\n\treturn Accepted\n", "\treturn Accepted\n"}},
			Caught: []Checker{{Package: "./fsm", Run: "Notice|Told"}, twins},
		},
		{
			Name:   "snapshots-forget-notices",
			Edits:  []Edit{{"fsm/snapshot.go", "\tf.notices(s)\n", ""}},
			Caught: []Checker{{Package: "./fsm", Run: "Notice|Told"}, snapshots},
		},
		{
			Name:   "dead-letters-are-told-nobody",
			Edits:  []Edit{{"coordinator/sequencer/sequencer.go", "\tnotify(b)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Notice"}},
		},
		{
			Name:   "jobs-are-forgotten-before-they-are-told",
			Edits:  []Edit{{"coordinator/sequencer/retention.go", `if a.pending[j.id] &&`, `if a.pending[0] &&`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Kept"}},
		},
		{
			Name:   "a-receiver-that-fails-was-told",
			Edits:  []Edit{{"coordinator/notify/post.go", `case code >= 200 && code < 300:`, `case code >= 200 && code != 400:`}},
			Caught: []Checker{notified},
		},
		{
			Name:   "redirects-are-followed",
			Edits:  []Edit{{"coordinator/notify/notify.go", `return http.ErrUseLastResponse`, `return nil`}},
			Caught: []Checker{notified},
		},
		{
			Name:   "repeats-have-other-ids",
			Edits:  []Edit{{"coordinator/notify/post.go", `"Webhook-Id", m.id)`, `"Webhook-Id", m.id+stamp)`}},
			Caught: []Checker{notified},
		},
		{
			Name:   "one-receiver-takes-all-places",
			Edits:  []Edit{{"coordinator/notify/queue.go", "\t\tif x.busy || len(x.notices) == 0", "\t\tif len(x.notices) == 0"}},
			Caught: []Checker{notified},
		},
		{
			Name:   "signatures-leave-the-body-out",
			Edits:  []Edit{{"coordinator/notify/secret.go", "\tmac.Write(body)\n", ""}},
			Caught: []Checker{notified},
		},
		{
			Name:   "commands-leave-processes-behind",
			Edits:  []Edit{{"coordinator/notify/command.go", "\t\t_ = killGroup(cmd) // what it left behind; mostly nothing\n", ""}},
			Caught: []Checker{notified},
		},
	}
}
