package spec

import (
	"errors"
	"maps"
	"strings"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Expressions in the texts of a job file. In a task with an array, and in one that has an
// expression of the run of a schedule, the worker replaces them, and $${{ by ${{. Everywhere
// else they are errors, so that none becomes a literal text by mistake; in another task,
// $${{ is replaced while the file is read.

// plainText checks a text in which no expression is possible.
func plainText(s string) problem {
	if array.Opens(s) {
		return problem{"has an expression, which is not possible here", "expressions may stand in command, run, cwd, stdin, inputs, output, env and payload of a task"}
	}
	return problem{}
}

// literal reports the first expression in a task that has none, and replaces $${{.
func literal(b *dtaskv1.TaskBody, p *policy) (field string, bad problem) {
	plain := func(name string, text *string) {
		if bad.bad() || !array.Opens(*text) {
			return
		}
		out, err := array.Expand(*text, array.Scope{}, false)
		if err != nil {
			field, bad = name, problem{"has an expression, but the task has no array", expressionAlone + "; write $${{ for the text ${{"}
			if unknown, ok := errors.AsType[*array.UnknownError](array.Check(*text)); ok && strings.Contains(unknown.Text, "scheduled.") {
				bad = problem{unknown.Error(), scheduledDo}
			}
			return
		}
		*text = out
	}
	taskbody.EachText(b, plain)
	payload := string(b.GetPayload())
	if plain("payload", &payload); array.Opens(b.GetPayload()) {
		b.Payload = []byte(payload)
	}
	copied := false
	for _, name := range namesOf(p.env) {
		text := p.env[name]
		if plain("env", &text); text == p.env[name] {
			continue
		}
		if !copied {
			p.env, copied = maps.Clone(p.env), true
		}
		p.env[name] = text
	}
	return field, bad
}

const (
	scheduledDo    = "the run of a schedule has ${{ scheduled.date }}, ${{ scheduled.at }} and ${{ scheduled.previous }}; write $${{ for the text ${{"
	scheduledAlone = "write schedule: beside job, such as " + scheduleForm + ", or leave the expression out; write $${{ for the text ${{"
	scheduledFlags = "write a job file with a schedule, and set that: dtaskctl schedule set FILE; write $${{ for the text ${{"
)

// scheduledTask marks a task that has an expression of the run of a schedule, and reports the
// first one if the file has no schedule.
func (r *reader) scheduledTask(b *dtaskv1.TaskBody, p *dtaskv1.TaskPolicy) (field string, bad problem) {
	templates(b, b.GetPayload(), p, func(name, text string) {
		if !array.UsesRun(text) {
			return
		}
		b.Scheduled = true
		if !r.hasSchedule && !bad.bad() {
			field, bad = name, problem{"has an expression of the run of a schedule, but the file has no schedule", scheduledAlone}
			if r.withoutFile {
				bad = problem{"has an expression of the run of a schedule, which this job is not", scheduledFlags}
			}
		}
	})
	return field, bad
}

// scheduledProblem checks a text with ${{ of a task without an array that has an expression of
// the run of a schedule.
func scheduledProblem(field, text string) problem {
	unknown, isUnknown := errors.AsType[*array.UnknownError](array.Check(text))
	switch {
	case array.UsesItem(text):
		return problem{"has an array expression, but the task has no array", expressionAlone}
	case isUnknown:
		return problem{unknown.Error(), scheduledDo}
	case field == "reuse.key":
		return problem{"has an expression, which is not possible here", "a result is reused by the key as it is written; write one without ${{"}
	}
	return problem{}
}
