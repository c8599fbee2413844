package mutants

// inTemplates returns the planted bugs of the tasks that runs of a schedule share in the history.
func inTemplates() []Mutant {
	shared := Checker{Package: "./coordinator/history", Run: "Template|WholeRuns"}
	return []Mutant{
		{
			Name:   "a-template-leaves-with-its-first-run",
			Edits:  []Edit{{"coordinator/history/template.go", `bytes.HasPrefix(next, sum[:]) {`, `bytes.HasPrefix(next, sum[:]) && len(next) == 0 {`}},
			Caught: []Checker{shared},
		},
		{
			Name:   "a-run-that-expires-keeps-its-template",
			Edits:  []Edit{{"coordinator/history/store.go", `		if s.template != nil {`, `		if s.template != nil && n < 0 {`}},
			Caught: []Checker{shared},
		},
		{
			Name:   "a-crash-leaves-parts-of-a-template",
			Edits:  []Edit{{"coordinator/history/file.go", `return removeInterrupted(tx)`, `return nil`}},
			Caught: []Checker{{Package: "./coordinator/history", Run: "TestATemplateSurvivesACrash"}},
		},
		{
			Name:   "a-received-run-stays-whole",
			Edits:  []Edit{{"coordinator/history/fetch.go", `f.partBytes >= fsm.MinTemplate`, `f.partBytes >= fsm.MinTemplate<<10`}},
			Caught: []Checker{shared},
		},
		{
			Name:   "a-scrub-trusts-the-checksums-of-a-template",
			Edits:  []Edit{{"coordinator/history/template_scrub.go", `s.hash.sum() != sum ||`, `s.hash.sum() == (templateSum{}) ||`}},
			Caught: []Checker{shared},
		},
	}
}
