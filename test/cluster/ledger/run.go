package ledger

import (
	"cmp"
	"slices"
	"time"
)

// A Run is one command's life, made of its lines.
type Run struct {
	Job, Task, Worker, Execution string
	Attempt                      int
	Token                        uint64
	Pid, Exit                    int
	Start                        time.Duration
	End                          time.Duration // 0: it was killed, or has not ended
	Labels                       map[string]string
	GPUs                         []string
	GPUAmount                    int64 // thousandths
}

// Ended tells whether the command wrote that it ended.
func (r Run) Ended() bool { return r.End != 0 }

// Runs puts the lines of each process together, in order of their starts.
func Runs(lines []Line) []Run {
	type process struct {
		worker, job, task string
		attempt, pid      int
	}
	var runs []Run
	open := make(map[process]int) // index into runs
	for _, l := range lines {
		p := process{l.Worker, l.Job, l.Task, l.Attempt, l.Pid}
		switch l.Kind {
		case Start:
			open[p] = len(runs)
			runs = append(runs, Run{
				Job: l.Job, Task: l.Task, Worker: l.Worker, Execution: l.Execution,
				Attempt: l.Attempt, Token: l.Token, Pid: l.Pid, Start: l.At, Labels: l.Labels, GPUs: l.GPUs, GPUAmount: l.GPUAmount,
			})
		case End:
			if i, ok := open[p]; ok {
				runs[i].End, runs[i].Exit = l.At, l.Exit
				delete(open, p)
			}
		}
	}
	slices.SortStableFunc(runs, func(a, b Run) int { return cmp.Compare(a.Start, b.Start) })
	return runs
}
