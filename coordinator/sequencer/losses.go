package sequencer

import (
	"log/slog"
	"strings"

	"github.com/dtask/dtask/fsm"
)

// namesTold is how many workers a line of the log names.
const namesTold = 5

// departures are the workers that one sweep gave up. Thousands may go at once, with
// a rack or a network: the log gets a line for all of them.
type departures struct {
	left, silent departed
}

// departed are some workers that went in the same way.
type departed struct {
	count, held int
	names       []string // of the first few
}

func (d *departed) add(w *worker) {
	d.count++
	d.held += w.held.len()
	if len(d.names) < namesTold {
		d.names = append(d.names, w.name)
	}
}

// tell writes the lines.
func (d *departures) tell(logger *slog.Logger) {
	if x := &d.left; x.count > 0 {
		logger.Info("workers left", "count", x.count, "workers", x.list())
	}
	if x := &d.silent; x.count > 0 {
		logger.Warn("workers lost", "reason", "silent", "count", x.count, "workers", x.list(), "held", x.held)
	}
}

func (d *departed) list() string {
	list := strings.Join(d.names, ", ")
	if d.count > len(d.names) {
		list += ", …"
	}
	return list
}

// lost gives up a worker that was silent for too long, or that left.
func (s *Sequencer) lost(b *batch, w *worker, gone *departures) {
	why := "silent"
	if w.draining && w.held.len() == 0 {
		why = "left"
		gone.left.add(w)
	} else {
		gone.silent.add(w)
		s.cfg.Totals.WorkersDown.Add(1)
	}
	if w.session != nil {
		w.session.Close(errSilent)
	}
	s.giveUp(b, w)
	b.draft.Do(&fsm.MarkWorkerDown{ID: w.id, Reason: why})
}
