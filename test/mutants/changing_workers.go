package mutants

// inChangingWorkers returns the mistakes by which a worker that comes back with another
// configuration runs what it may not.
func inChangingWorkers() []Mutant {
	simulation := []Checker{{Package: "./coordinator/sequencer", Run: "TestNothingAcknowledgedIsLostWhateverHappens$", Args: []string{"-sim.seed=1001", "-sim.runs=300"}}}
	return []Mutant{
		{
			Name:   "a-worker-keeps-the-labels-that-it-had",
			Edits:  []Edit{{"scheduler/worker.go", "	wk.total, wk.labels, wk.types, wk.serves = nil, nil, nil, nil\n", "	wk.total, wk.types, wk.serves = nil, nil, nil\n"}},
			Caught: simulation,
		},
		{
			Name:   "other-labels-are-not-registered",
			Edits:  []Edit{{"coordinator/sequencer/attach.go", "		slices.Equal(w.Labels, r.Labels) && slices.Equal(", "		len(w.Labels) >= 0 && slices.Equal("}},
			Caught: simulation,
		},
		{
			Name: "a-worker-keeps-the-resources-that-it-had",
			Edits: []Edit{
				{"scheduler/worker.go", "	wk.total, wk.labels, wk.types, wk.serves = nil, nil, nil, nil\n", "	wk.labels, wk.types, wk.serves = nil, nil, nil\n"},
				{"scheduler/worker.go", "		wk.total[r] = q.Amount\n", "		wk.total[r] = max(wk.total[r], q.Amount)\n"},
			},
			Caught: simulation,
		},
		{
			Name:   "what-a-queue-requires-is-forgotten",
			Edits:  []Edit{{"coordinator/sequencer/policies.go", "	d.Labels = append(d.Labels, p.required[d.Queue]...)\n", ""}},
			Caught: simulation,
		},
		{
			Name:   "a-reserved-worker-runs-everything",
			Edits:  []Edit{{"scheduler/worker.go", " && (!w.dedicated || c.pooled)\n", "\n"}},
			Caught: simulation,
		},
	}
}
