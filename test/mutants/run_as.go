package mutants

// inRunAs returns the mistakes with secrets, and with commands of another user. Without
// root, the checkers can't find the latter.
func inRunAs() []Mutant {
	const command = "worker/command.go"
	caught := func(tests string) []Checker { return []Checker{{Package: "./worker/process", Run: tests}} }
	return []Mutant{
		{
			Name:   "a-copy-of-a-secret-stays-after-its-attempt",
			Edits:  []Edit{{"worker/execute.go", "\tdefer secrets.remove(w, a)\n", ""}},
			Caught: []Checker{{Package: "./worker", Run: "SecretsThatItsTaskNames"}},
		},
		{
			Name:   "a-copy-of-a-secret-stays-after-a-crash",
			Edits:  []Edit{{"worker/secret_dir.go", `err = os.RemoveAll(dir)`, `err = nil`}},
			Caught: []Checker{{Package: "./worker", Run: "CopiesOfACrashedWorker"}},
		},
		{
			Name:   "isolation-is-not-required",
			Edits:  []Edit{{"worker/run_as.go", "if c.RunAs == \"\" {\n\t\treturn errors.New", "if c.RunAs == \"-\" {\n\t\treturn errors.New"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAWorkerThatMustIsolate"}},
		},
		{
			Name:   "the-groups-of-root-stay",
			Edits:  []Edit{{"worker/process/user_linux.go", `Gid: u.GID, Groups: u.Groups}`, `Gid: u.GID, NoSetGroups: true}`}},
			Caught: caught("NoRightsOfItsWorker"),
		},
		{
			Name:   "the-capabilities-of-root-can-come-back",
			Edits:  []Edit{{"worker/process/supervisor_linux.go", `if err := disinherit(); err != nil {`, `if err := error(nil); err != nil {`}},
			Caught: caught("NoRightsOfItsWorker"),
		},
		{
			Name:   "the-lowest-user-of-owners-is-not-checked",
			Edits:  []Edit{{"worker/owner_map.go", `if user.UID < minUID {`, `if user.UID < 1 {`}},
			Caught: []Checker{{Package: "./worker", Run: "WithoutALineForItsOwner"}},
		},
		{
			Name:   "root-opens-the-input-of-a-command",
			Edits:  []Edit{{"worker/run_program.go", `err = a.slot.programs.User.Do(func() (err error) {`, `err = (*process.User)(nil).Do(func() (err error) {`}},
			Caught: []Checker{{Package: "./worker", Run: "GetsNoFileThroughItsWorker"}},
		},
		{
			Name:   "root-reads-the-result-of-a-command",
			Edits:  []Edit{{command, `err = a.slot.programs.User.Do(func() error {`, `err = (*process.User)(nil).Do(func() error {`}},
			Caught: []Checker{{Package: "./worker", Run: "GetsNoFileThroughItsWorker"}},
		},
		{
			Name:   "root-makes-the-output-of-a-command",
			Edits:  []Edit{{"worker/execute.go", `a.ref, w.userOf(a))`, `a.ref, nil)`}},
			Caught: []Checker{{Package: "./worker", Run: "GetsNoFileThroughItsWorker"}},
		},
	}
}
