package mutants

// inOutput returns the mistakes in how the output of attempts is read, kept and removed.
func inOutput() []Mutant {
	const (
		segment = "worker/logs/segment.go"
		writer  = "worker/logs/writer.go"
	)
	caught := func(tests string) []Checker { return []Checker{{Package: "./worker/logs", Run: tests}} }
	return []Mutant{
		{
			Name:   "output-without-an-index-is-forgotten",
			Edits:  []Edit{{segment, "\tif err := s.scan(); err != nil {\n\t\treturn nil, err\n\t}\n", ""}},
			Caught: caught("Crash|Order"),
		},
		{
			Name:   "a-record-is-read-without-its-checksum",
			Edits:  []Edit{{"worker/logs/record.go", ` || crc32.Checksum(b[4:n], castagnoli) != binary.LittleEndian.Uint32(b) {`, ` {`}},
			Caught: caught("Crash"),
		},
		{
			Name:   "output-that-was-not-stored-leaves-no-gap",
			Edits:  []Edit{{writer, "\t\t\tw.written += uint64(len(data))\n", ""}},
			Caught: caught("IsAGap"),
		},
		{
			Name:   "a-little-output-each-day-keeps-old-output",
			Edits:  []Edit{{"worker/logs/store.go", `s.now().UnixMilli()-seg.oldestMS > s.limits.Age.Milliseconds()/8`, `false`}},
			Caught: caught("TooOld"),
		},
		{
			Name:   "the-stream-that-wrote-first-is-read-last",
			Edits:  []Edit{{"worker/process/outputs_linux.go", `list = append(list, o.pipes[e.Fd])`, `list = append([]*outputPipe{o.pipes[e.Fd]}, list...)`}},
			Caught: []Checker{{Package: "./worker/process", Run: "BecameReadable"}},
		},
		{
			Name:   "output-that-is-there-at-the-deadline-is-lost",
			Edits:  []Edit{{"worker/process/outputs_linux.go", "found = look(fd) }", "_ = look(fd) }"}},
			Caught: []Checker{{Package: "./worker/process", Run: "IsThereAtTheDeadline"}},
		},
		{
			Name:   "a-busy-program-is-not-tried-again",
			Edits:  []Edit{{"worker/run_program.go", "if !isBusy(err) || pause > maxBusyPause {", "if true {"}},
			Caught: []Checker{{Package: "./worker", Run: "IsBusyForAMoment"}},
		},
	}
}
