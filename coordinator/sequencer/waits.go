package sequencer

import "github.com/dtask/dtask/fsm"

// How many tasks are measured: all while no more than fewWait wait, then those of
// one index in sampleEvery, up to mostWait.
const (
	fewWait     = 64
	sampleEvery = 64
	mostWait    = 1 << 16
)

// becameReady begins to measure how long tasks are ready, those of them that are
// measured.
func (s *Sequencer) becameReady(b *batch, run fsm.TaskRun) {
	few := len(s.readySince)+int(run.N) <= fewWait
	for i := uint32(0); i < run.N && len(s.readySince) < mostWait; i++ {
		if !few {
			i += (sampleEvery - (run.Index+i)%sampleEvery) % sampleEvery // to the next of these
		}
		if i < run.N {
			s.readySince[fsm.TaskRef{Job: run.Job, Index: run.Index + i}] = b.now
		}
	}
}

// wasReady ends the measurement with the task's assignment. While many wait, those
// that are only measured because few did a moment ago are passed over: looking
// each task up costs more than they are worth.
func (s *Sequencer) wasReady(b *batch, ref fsm.TaskRef) {
	if s.sched.Len() > fewWait && ref.Index%sampleEvery != 0 {
		return
	}
	if since, ok := s.readySince[ref]; ok {
		delete(s.readySince, ref)
		b.ready = append(b.ready, since)
	}
}
