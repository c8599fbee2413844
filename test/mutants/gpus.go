package mutants

// inGPUs returns the mistakes by which attempts use GPUs of others.
func inGPUs() []Mutant {
	return []Mutant{
		{
			Name:   "a-part-of-a-gpu-takes-a-free-one",
			Edits:  []Edit{{"worker/gpu/pool.go", "free < p.free[best]", "free > p.free[best]"}},
			Caught: []Checker{{Package: "./worker/gpu", Run: "TestPartsShareTheFullestGPU"}},
		},
		{
			Name:   "a-whole-gpu-may-be-in-use",
			Edits:  []Edit{{"worker/gpu/pool.go", "if p.free[i] == whole {", "if p.free[i] > 0 {"}},
			Caught: []Checker{{Package: "./worker/gpu", Run: "TestAWholeGPUIsAwaited"}},
		},
		{
			Name:   "an-attempt-keeps-its-gpu",
			Edits:  []Edit{{"worker/execute.go", "	defer returnGPUs()\n", "	_ = returnGPUs\n"}},
			Caught: []Checker{{Package: "./worker", Run: "TestAHandlerReadsItsGPUs"}},
		},
		{
			Name:   "a-slot-gives-gpus-to-its-next-attempt",
			Edits:  []Edit{{"worker/gpus.go", "	a.slot.gpus = nil\n", ""}},
			Caught: []Checker{{Package: "./worker", Run: "TestTheNextAttemptOfASlot"}},
		},
	}
}
