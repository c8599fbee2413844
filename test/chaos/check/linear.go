package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dtask/dtask/test/chaos/history"
)

// Limits of the search for an order.
const (
	linearLimit = 10 * time.Minute // of all partitions of one model together
	mostDrawn   = 5                // diagrams of illegal histories
)

// phase is the progress of a job or task, as its callers can observe it.
type phase uint8

// The phases. Something live may have ended by itself at any time; what a caller
// observed of that is kept.
const (
	absent phase = iota
	live
	ended // by itself; state.as has how, if it was observed
	cancelled
)

// state is that of one job, task or key in the models.
type state struct {
	phase   phase
	as      string // how it ended
	attempt int    // highest observed
	count   int    // completed tasks observed
	done    bool   // an attempt succeeded, so that it may be completed
	body    string // of a key
	id      string // of a key
}

// step is one operation in the models.
type step struct {
	call history.Call
	what what
}

type what uint8

const (
	calls  what = iota + 1 // a client's call
	starts                 // an attempt was assigned: it has started by the return
	ends                   // an attempt succeeded: it may be accepted from the call on
	sweeps                 // the task's whole job was cancelled
)

// Linear searches for orders of the calls that explain their results. Diagrams of
// histories without one are written to dir, unless it is empty.
func Linear(r Record, dir string) []Fault {
	var faults list
	a := newAccount(r)
	jobs, tasks, keys := partition(a)
	for name, histories := range map[string]map[string][]porcupine.Operation{"job": jobs, "task": tasks, "key": keys} {
		model := things()
		if name == "key" {
			model = register()
		}
		judge(&faults, model, name, histories, dir, linearLimit)
	}
	return faults
}

func judge(faults *list, model porcupine.Model, name string, histories map[string][]porcupine.Operation, dir string, limit time.Duration) {
	deadline := time.Now().Add(limit)
	drawn := 0
	for where, operations := range histories {
		left := max(time.Until(deadline), time.Millisecond)
		result, info := porcupine.CheckOperationsVerbose(model, operations, left)
		switch result {
		case porcupine.Ok:
		case porcupine.Unknown:
			faults.add(Undecided, name+" "+where, "%d operations were not ordered in time", len(operations))
		case porcupine.Illegal:
			text := make([]string, 0, len(operations))
			for _, o := range operations {
				text = append(text, fmt.Sprintf("[%v–%v] %s", time.Duration(o.Call), time.Duration(o.Return), describe(o.Input, o.Output)))
			}
			faults.add(Illegal, name+" "+where, "%s", strings.Join(text, "; "))
			if drawn++; dir != "" && drawn <= mostDrawn {
				draw(model, info, filepath.Join(dir, "illegal-"+name+"-"+strings.ReplaceAll(where, "/", "-")+".html"))
			}
		}
	}
}

// draw writes a diagram of a fault, which is reported in any case.
func draw(model porcupine.Model, info porcupine.LinearizationInfo, path string) {
	file, err := os.Create(path)
	if err != nil {
		return
	}
	_ = porcupine.Visualize(model, info, file)
	_ = file.Close()
}

// partition sorts operations by what they are about.
func partition(a *account) (jobs, tasks, keys map[string][]porcupine.Operation) {
	jobs, tasks, keys = make(map[string][]porcupine.Operation), make(map[string][]porcupine.Operation), make(map[string][]porcupine.Operation)
	add := func(to map[string][]porcupine.Operation, where string, s step) {
		to[where] = append(to[where], porcupine.Operation{
			ClientId: s.call.Client, Input: s, Call: int64(s.call.Call), Return: int64(s.call.Return),
		})
	}
	idOf := make(map[string]string) // key → id; existing jobs show which unknown submissions took effect
	for _, f := range a.finals {
		if p := a.plans[f.Name]; p != nil && f.Run == nil {
			idOf[p.Key] = f.ID
		}
	}
	watched := make(map[string]map[string]bool) // tasks that calls name
	for _, c := range a.calls {
		if c.Task != "" {
			if watched[c.Job] == nil {
				watched[c.Job] = make(map[string]bool)
			}
			watched[c.Job][c.Task] = true
		}
	}
	for _, c := range a.calls {
		s := step{call: c, what: calls}
		switch {
		case c.Schedule != "":
			continue // Account judges it
		case c.Kind == history.Explain || c.Kind == history.Plan:
			continue // Account judges it
		case c.Kind == history.Stale:
			continue // promises nothing about order
		case c.Kind == history.Read && c.Verdict == history.Unknown:
			continue // has no effect
		case c.Kind == history.Submit:
			if c.Verdict == history.Unknown && c.Job == "" {
				s.call.Job = idOf[c.Key]
			}
			add(keys, c.Key, s)
			if s.call.Job == "" {
				continue
			}
			add(jobs, s.call.Job, s)
			for task := range watched[s.call.Job] {
				add(tasks, place{s.call.Job, task}.String(), s)
			}
		case c.Task != "":
			add(tasks, place{c.Job, c.Task}.String(), s)
		default:
			add(jobs, c.Job, s)
			for task := range watched[c.Job] {
				if c.Kind == history.Cancel && c.Verdict != history.Fail {
					add(tasks, place{c.Job, task}.String(), step{call: c, what: sweeps})
				}
			}
		}
	}
	for job, names := range watched {
		for task := range names {
			at := place{job, task}
			if len(tasks[at.String()]) == 0 {
				continue
			}
			for _, r := range a.runs[at] {
				add(tasks, at.String(), step{what: starts, call: history.Call{Attempt: r.Attempt, Return: r.Start}})
				if r.Ended() && r.Exit == 0 {
					add(tasks, at.String(), step{what: ends, call: history.Call{Attempt: r.Attempt, Call: r.End, Return: history.Never}})
				}
			}
		}
	}
	return jobs, tasks, keys
}

// things is the model of a job or a task.
func things() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(now, input, _ any) (bool, any) {
			s, ok := now.(state)
			o, isStep := input.(step)
			if !ok || !isStep {
				return false, now
			}
			ok, s = s.next(o)
			return ok, s
		},
		DescribeOperation: describe,
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

func (s state) next(o step) (bool, state) {
	c := o.call
	switch o.what {
	case starts:
		s.attempt = max(s.attempt, c.Attempt)
		return true, s // Account reports a start after an end
	case ends:
		s.done = true
		return true, s
	case sweeps:
		if s.phase == live {
			s.phase = cancelled
		}
		return true, s
	case calls:
	}
	switch c.Kind {
	case history.Submit:
		return s.submit(c)
	case history.Cancel:
		return s.cancel(c)
	case history.Read:
		return s.read(c)
	case history.Stale, history.Explain, history.Plan, history.SetSchedule, history.PauseSchedule, history.ResumeSchedule, history.DeleteSchedule, history.ReadSchedule:
	}
	return false, s
}

func (s state) submit(c history.Call) (bool, state) {
	switch {
	case c.Verdict == history.Fail:
		return true, s // checked by the register
	case s.phase == absent:
		s.phase = live
		return true, s
	default:
		return c.Already || c.Verdict == history.Unknown, s
	}
}

func (s state) cancel(c history.Call) (bool, state) {
	switch {
	case c.Verdict == history.Unknown:
		if s.phase == live {
			s.phase = cancelled
		}
		return true, s
	case c.Verdict == history.OK:
		// A task may be cancelled with its job or because of its dependencies.
		if s.phase == live || (s.phase == cancelled && c.Already) || (s.phase == ended && s.as == "cancelled" && c.Already) {
			s.phase = cancelled
			return true, s
		}
		return false, s
	case c.Reason == history.Conflict:
		if s.phase == live {
			s.phase = ended
		}
		return s.phase == ended, s
	case c.Reason == history.NotFound:
		return s.phase == absent, s
	default:
		return true, s // refused without effect
	}
}

func (s state) read(c history.Call) (bool, state) {
	if c.Verdict == history.Fail {
		return c.Reason != history.NotFound || s.phase == absent, s
	}
	if s.phase == absent || (c.Task != "" && c.Attempt < s.attempt) || c.Count < s.count {
		return false, s
	}
	s.count, s.attempt = c.Count, max(s.attempt, c.Attempt)
	switch c.State {
	case "completed", "aggregated", "failed", "dead", "lost":
		if c.Task != "" && (c.State == "completed" || c.State == "aggregated") && !s.done {
			return false, s
		}
		as := strings.Replace(c.State, "aggregated", "completed", 1)
		if s.phase == live || (s.phase == ended && s.as == "") {
			s.phase, s.as = ended, as
		}
		return s.phase == ended && s.as == as, s
	case "cancelled":
		// Not cancelled by a caller: a dependency did not complete.
		if s.phase == live || (s.phase == ended && s.as == "") {
			s.phase, s.as = ended, "cancelled"
		}
		return s.phase == cancelled || s.as == "cancelled", s
	default:
		return s.phase == live, s
	}
}

// register is the model of an idempotency key.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(now, input, _ any) (bool, any) {
			s, ok := now.(state)
			o, isStep := input.(step)
			if !ok || !isStep {
				return false, now
			}
			ok, s = s.keep(o.call)
			return ok, s
		},
		DescribeOperation: describe,
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

func (s state) keep(c history.Call) (bool, state) {
	switch {
	case c.Verdict == history.Fail && c.Reason == history.Conflict:
		return s.phase == live && s.body != c.Body, s
	case c.Verdict == history.Fail:
		return true, s
	case s.phase == absent:
		return true, state{phase: live, body: c.Body, id: c.Job}
	case c.Verdict == history.Unknown:
		return true, s
	default:
		return s.body == c.Body && s.id == c.Job && c.Already, s
	}
}

// describe formats an operation.
func describe(input, _ any) string {
	o, ok := input.(step)
	if !ok {
		return "?"
	}
	c := o.call
	switch o.what {
	case starts:
		return fmt.Sprintf("attempt %d assigned", c.Attempt)
	case ends:
		return fmt.Sprintf("attempt %d succeeded", c.Attempt)
	case calls, sweeps:
	}
	outcome := string(c.Verdict)
	if c.Reason != "" {
		outcome += " (" + c.Reason + ")"
	}
	if c.Already {
		outcome += ", already"
	}
	switch c.Kind {
	case history.Submit:
		return fmt.Sprintf("submit key %s body %s → %s job %s", c.Key, c.Body, outcome, c.Job)
	case history.Cancel:
		return fmt.Sprintf("cancel %s → %s", strings.TrimSuffix(c.Job+"/"+c.Task, "/"), outcome)
	case history.Explain, history.Plan, history.SetSchedule, history.PauseSchedule, history.ResumeSchedule, history.DeleteSchedule, history.ReadSchedule:
	case history.Read, history.Stale:
		return fmt.Sprintf("read %s → %s %s, attempt %d, %d completed", strings.TrimSuffix(c.Job+"/"+c.Task, "/"), outcome, c.State, c.Attempt, c.Count)
	}
	return "?"
}
