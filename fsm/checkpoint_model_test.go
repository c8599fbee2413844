package fsm

// checkpoint saves a checkpoint in place of the previous one.
func (w *model) checkpoint(op *Checkpoint) string {
	_, t, r := w.live(op.HeldAttempt)
	c := op.Saved
	c.Attempt, c.AtMS = op.Attempt, w.now
	inline := c.File == "" && len(c.SHA256) == 0 && len(c.Data) <= 64<<10 && int(c.Size) == len(c.Data)
	aside := c.File != "" && len(c.File) <= 512 && len(c.SHA256) == 32 && len(c.Data) == 0 && c.Size >= 0
	switch {
	case r != "":
		return r
	case c.Number == 0 || c.Format != DirectoryCheckpoint && c.Format != DataCheckpoint || !inline && !aside:
		return "malformed"
	case t.saved != nil && t.saved.Attempt == c.Attempt && t.saved.Number >= c.Number:
		return "already accepted"
	}
	t.saved = &c
	return "accepted"
}

// dropCheckpoints removes the checkpoints of ended tasks.
func (w *model) dropCheckpoints() {
	for _, j := range w.jobs {
		for _, t := range j.tasks {
			if t.hasEnded() {
				t.saved = nil
			}
		}
	}
}
