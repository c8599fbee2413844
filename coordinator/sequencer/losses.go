package sequencer

import (
	"log/slog"
	"strings"
)

// maxLoggedNames is how many workers a log line names.
const maxLoggedNames = 5

// workerLosses are the workers that one sweep marked down. A rack or a network
// may take thousands down together: the log gets one line for all of them.
type workerLosses struct {
	left, timedOut lossGroup
}

// lossGroup are workers that were marked down for the same reason.
type lossGroup struct {
	count, attempts int
	names           []string // the first few
}

func (g *lossGroup) add(w *worker) {
	g.count++
	g.attempts += w.held.len()
	if len(g.names) < maxLoggedNames {
		g.names = append(g.names, w.name)
	}
}

func (l *workerLosses) log(logger *slog.Logger) {
	if g := &l.left; g.count > 0 {
		logger.Info("workers left", "count", g.count, "workers", g.list())
	}
	if g := &l.timedOut; g.count > 0 {
		logger.Warn("workers marked down", "reason", "liveness timeout",
			"count", g.count, "workers", g.list(), "attempts", g.attempts)
	}
}

func (g *lossGroup) list() string {
	list := strings.Join(g.names, ", ")
	if g.count > len(g.names) {
		list += ", …"
	}
	return list
}
