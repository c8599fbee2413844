package mutants

// inSequencer returns the mistakes in the sequencer.
func inSequencer() []Mutant {
	return []Mutant{
		{
			Name:   "an-attempt-starts-when-it-is-reported",
			Edits:  []Edit{{"coordinator/sequencer/reports.go", `b.entry.NowMS() - int64(r.GetRanMs())`, `b.entry.NowMS()`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "TestAnAttemptStartedAsLongAgo"}},
		},
		{
			Name:   "a-repeated-change-is-a-conflict",
			Edits:  []Edit{{"coordinator/sequencer/change.go", `FirstOutcome(b.view, id, p); known {`, `FirstOutcome(b.view, id, p); known && err != nil {`}},
			Caught: []Checker{simulated},
		},
		{
			Name: "answers-come-before-the-commit",
			Edits: []Edit{
				{"coordinator/sequencer/pipeline.go", "\tp.cfg.Machine.CacheDecoded(data, entry)\n", "\tp.cfg.Machine.CacheDecoded(data, entry)\n\tfor _, f := range b.after {\n\t\tf(0, nil)\n\t}\n\tb.after = nil\n"},
			},
			Caught: []Checker{simulated},
		},
		{
			Name: "assignments-leave-before-the-commit",
			Edits: []Edit{
				{"coordinator/sequencer/pipeline.go", "\tp.cfg.Machine.CacheDecoded(data, entry)\n", "\tp.cfg.Machine.CacheDecoded(data, entry)\n\tfor _, a := range b.out {\n\t\ta.to.Send(a.m)\n\t}\n\tb.out = nil\n"},
			},
			Caught: []Checker{simulated},
		},
		{
			Name:   "a-pause-costs-workers",
			Edits:  []Edit{{"coordinator/sequencer/sequencer.go", `if gap > s.cfg.TimeScale.Scale(pauseThreshold) {`, `if gap > s.cfg.TimeScale.Scale(1000*pauseThreshold) {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Pause|Sweep|Silent|Forgiv"}, simulated},
		},
		{
			Name: "slots-are-freed-twice",
			Edits: []Edit{{
				"coordinator/sequencer/workers.go",
				"\tt.sched.Release(scheduler.WorkerID(w.id), x.class, x.priority)\n\treturn x, true\n",
				"\tt.sched.Release(scheduler.WorkerID(w.id), x.class, x.priority)\n\tt.sched.Release(scheduler.WorkerID(w.id), x.class, x.priority)\n\treturn x, true\n",
			}},
			Caught: []Checker{simulated},
		},
		{
			Name:   "a-drain-is-not-heard",
			Edits:  []Edit{{"coordinator/sequencer/reports.go", "\t\tw.leaving = true\n", "\t\tw.leaving = false\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Drain|Leav"}, {Package: "./coordinator/session", Run: "Leaves|Leaving"}, simulated},
		},
		{
			Name:   "poison-tasks-never-die",
			Edits:  []Edit{{"coordinator/sequencer/workers.go", `int(x.Losses)+1 >= t.cfg.MaxLosses {`, `int(x.Losses)+1 >= 1000*t.cfg.MaxLosses {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "."}},
		},
		{
			Name:   "only-reported-starts-count-as-losses",
			Edits:  []Edit{{"coordinator/sequencer/held.go", `if x.started != 0 || i < slots {`, `if x.started != 0 || i < 0*slots {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "KillsItsWorkers|MayRun"}},
		},
		{
			Name:   "leases-end-at-once",
			Edits:  []Edit{{"coordinator/sequencer/leases.go", `until := b.now.Add(l.duration)`, `until := b.now`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "."}},
		},
		{
			Name:   "two-processes-share-a-name",
			Edits:  []Edit{{"coordinator/sequencer/attach.go", `w.incarnation != h.Incarnation && silent < t.cfg.LivenessTimeout {`, `w.incarnation != h.Incarnation && silent < 0 {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Name|Process|Incarnation"}, {Package: "./coordinator/session", Run: "NameInUse"}},
		},
		{
			Name:   "any-process-with-a-lock-is-a-successor",
			Edits:  []Edit{{"coordinator/sequencer/attach.go", `w.lockID != "" && w.lockID == h.LockID {`, `w.lockID != "" && h.LockID != "" {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Refused"}},
		},
		{
			Name:   "start-timeouts-count-as-retries",
			Edits:  []Edit{{"coordinator/sequencer/timeouts.go", `Next: fsm.NextRetry, Due: b.entry.NowMS(), Error: text}`, `Next: fsm.NextRetry, Due: b.entry.NowMS(), Error: text, CountsAsRetry: true}`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "NotStarted"}},
		},
		{
			Name:   "a-new-leader-forgets-retries",
			Edits:  []Edit{{"coordinator/sequencer/term.go", `d.timers.addDue(b, a, t.DueMS, d.longestWait(b, ref, t))`, `new(timers).addDue(b, a, t.DueMS, d.longestWait(b, ref, t))`}},
			Caught: []Checker{simulated},
		},
		{
			Name:   "a-retry-waits-for-the-clock-of-a-dead-leader",
			Edits:  []Edit{{"coordinator/sequencer/term.go", `if t.Attempt == 0 {`, `if t.Attempt >= 0 {`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "AfterALeaderWithAWrongClock"}},
		},
		{
			Name:   "a-new-leader-puts-back-what-runs",
			Edits:  []Edit{{"coordinator/sequencer/attach.go", "\t\tcase present[a]:\n", "\t\tcase !present[a]:\n"}},
			Caught: []Checker{simulated},
		},
		{
			Name:   "a-key-with-another-job-is-accepted",
			Edits:  []Edit{{"coordinator/sequencer/submit.go", "\t\tif digest != u.Digest {\n", "\t\tif digest != u.Digest && u.Key == \"\" {\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Key"}, simulated},
		},
		{
			Name:   "deadlines-are-not-kept",
			Edits:  []Edit{{"coordinator/sequencer/timers.go", `b.entry.Do(&fsm.FailJob{Job: id, Error: "deadline exceeded"})`, `_ = b`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "Deadline"}},
		},
		{
			Name:   "a-task-is-requeued-once",
			Edits:  []Edit{{"coordinator/sequencer/queue_timeout.go", "\t\td.schedule(b, ref, &t, p)\n\t\td.startQueueTimeout(b, ref, p)\n", "\t\td.schedule(b, ref, &t, p)\n"}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "QueueTimeout"}},
		},
		{
			Name:   "a-requeued-task-keeps-its-place",
			Edits:  []Edit{{"coordinator/sequencer/queue_timeout.go", "\t\td.unschedule(ref)\n", ""}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "QueueTimeout"}},
		},
		{
			Name:   "many-silent-workers-raise-no-doubt",
			Edits:  []Edit{{"coordinator/sequencer/liveness.go", `if len(silent) < 3 ||`, `if len(silent) < 3000 ||`}},
			Caught: []Checker{{Package: "./coordinator/sequencer", Run: "."}},
		},
	}
}
