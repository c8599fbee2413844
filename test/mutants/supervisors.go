package mutants

// inSupervisors returns the mistakes in supervisors, which run one program after
// another, in the worker's end of them, and in the directories of commands.
func inSupervisors() []Mutant {
	const (
		supervisor = "worker/process/supervisor_linux.go"
		handle     = "worker/process/handle_linux.go"
	)
	caught := func(tests string) []Checker { return []Checker{{Package: "./worker/process", Run: tests}} }
	return []Mutant{
		{
			Name: "a-killed-worker-leaves-processes",
			Edits: []Edit{{
				supervisor,
				"\t\t\ts.stopped = true\n\t\t\ts.killTree()\n\t\t\treturn\n",
				"\t\t\tif s.stopped = true; ok {\n\t\t\t\ts.killTree()\n\t\t\t}\n\t\t\treturn\n",
			}},
			Caught: caught("Outlives|Tree"),
		},
		{
			Name:   "a-program-starts-beside-leftovers-of-another",
			Edits:  []Edit{{supervisor, `s.killTree() // the program has ended by itself`, `// the program has ended by itself`}},
			Caught: caught("LeavesBehind|NothingOfOneProgram"),
		},
		{
			Name:   "a-supervisor-keeps-the-streams-of-its-programs",
			Edits:  []Edit{{supervisor, `defer closeAll(streams)`, `_ = closeAll`}},
			Caught: caught("KeepsNoDescriptors"),
		},
		{
			Name: "a-program-inherits-the-streams-of-another",
			Edits: []Edit{
				{supervisor, `defer closeAll(streams)`, `_ = closeAll`},
				{"worker/process/inbox_linux.go", `unix.MSG_CMSG_CLOEXEC`, `0`},
			},
			Caught: caught("NothingOfOneProgram|Isolated"),
		},
		{
			Name:   "a-supervisor-that-was-changed-from-outside-is-used-again",
			Edits:  []Edit{{supervisor, `rep.Leaving = currentAttributes() != s.initial`, `rep.Leaving = false`}},
			Caught: caught("ChangedFromOutside|NothingOfOneProgram"),
		},
		{
			Name:   "a-supervisor-has-the-umask-of-its-worker",
			Edits:  []Edit{{supervisor, `unix.Umask(o.Umask)`, ``}},
			Caught: caught("Isolated"),
		},
		{
			Name:   "a-program-has-the-state-of-the-one-before",
			Edits:  []Edit{{supervisor, `s.execution = execution{pidfd: -1}`, `s.pidfd = -1`}},
			Caught: caught("EndsAsIfItWereTheFirst"),
		},
		{
			Name: "a-late-stop-stops-the-next-program",
			Edits: []Edit{
				{supervisor, "\torders  *gob.Decoder // of inbox\n", "\torders  *gob.Decoder // of inbox\n\tlate    bool\n"},
				{supervisor, `continue // a stop that came too late`, "s.late = true\n\t\t\tcontinue"},
				{supervisor, `s.execution = execution{pidfd: -1}`, "s.execution = execution{pidfd: -1, stopped: s.late}\n\ts.late = false"},
			},
			Caught: caught("TooLateDoesNotStop"),
		},
		{
			Name:   "a-stop-overtakes-the-order-to-start",
			Edits:  []Edit{{handle, `case o.Stop != nil && !h.sent:`, `case o.Stop != nil && h.stopped:`}},
			Caught: caught("BeforeItsOrderIsSent"),
		},
		{
			Name:   "a-program-whose-supervisor-was-lost-starts-again",
			Edits:  []Edit{{handle, "io.ErrUnexpectedEOF):\n\t\treturn report{}, errLost", "io.ErrUnexpectedEOF):\n\t\treturn report{}, errNotReceived"}},
			Caught: caught("KilledSupervisor"),
		},
		{
			Name:   "an-order-that-was-sent-may-fail",
			Edits:  []Edit{{handle, `if rest = rest[n:]; len(rest) == 0 {`, `if rest = rest[n:]; len(rest) < 0 {`}},
			Caught: caught("NeverReportedAsNotReceived"),
		},
		{
			Name:   "an-order-that-was-not-read-counts-as-started",
			Edits:  []Edit{{handle, "bytes of ours were not read\n\t\treturn report{}, errNotReceived", "bytes of ours were not read\n\t\treturn report{}, errLost"}},
			Caught: caught("BeforeItReadTheOrder"),
		},
		{
			Name:   "a-stopped-supervisor-keeps-its-worker-from-ending",
			Edits:  []Edit{{handle, "\t_ = h.process.Kill()    // it may be stopped\n", ""}},
			Caught: caught("SupervisorThatIsStopped"),
		},
		{
			Name:   "a-directory-with-files-is-used-again",
			Edits:  []Edit{{"worker/spare_dir.go", `return same && isEmpty(s.path)`, `return same || !isEmpty(s.path)`}},
			Caught: []Checker{{Package: "./worker", Run: "SpareDirectory"}},
		},
		{
			Name:   "a-checkpoint-reaches-the-next-task",
			Edits:  []Edit{{"worker/spare_dir.go", "\t*s = spareDir{}\n\treturn false\n", "\treturn false\n"}},
			Caught: []Checker{{Package: "./worker", Run: "CheckpointNeverReaches"}},
		},
	}
}
