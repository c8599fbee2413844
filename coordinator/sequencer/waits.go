package sequencer

import "github.com/dtask/dtask/fsm"

// How many tasks are measured: all while no more than fewWait are, then those of
// one index in sampleEvery, up to mostWait.
const (
	fewWait     = 64
	sampleEvery = 64
	mostWait    = 1 << 16
)

// becameReady begins to measure how long a task is ready, if it is one of those
// that are measured.
func (s *Sequencer) becameReady(b *batch, ref fsm.TaskRef) {
	if n := len(s.readySince); n < fewWait || n < mostWait && ref.Index%sampleEvery == 0 {
		s.readySince[ref] = b.now
	}
}

// wasReady ends the measurement with the task's assignment. While many wait, those
// that are only measured because few did a moment ago are passed over: looking
// each task up costs more than they are worth.
func (s *Sequencer) wasReady(b *batch, ref fsm.TaskRef) {
	if len(s.readySince) > 2*fewWait && ref.Index%sampleEvery != 0 {
		return
	}
	if since, ok := s.readySince[ref]; ok {
		delete(s.readySince, ref)
		b.ready = append(b.ready, since)
	}
}
