package spec

import (
	"maps"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Expressions in the texts of a job file. In a task with an array, the worker replaces
// them, and $${{ by ${{. Everywhere else they are errors, so that none becomes a literal
// text by mistake; in a task, $${{ is replaced while the file is read.

// plainText checks a text in which no expression is possible.
func plainText(s string) problem {
	if array.Opens(s) {
		return problem{"has an expression, which is not possible here", "expressions may stand in command, run, cwd, stdin, inputs, output, env and payload of a task with array"}
	}
	return problem{}
}

// literal reports the first expression in a task without an array, and replaces $${{.
func literal(b *dtaskv1.TaskBody, p *policy) (field string, bad problem) {
	plain := func(name string, text *string) {
		if bad.bad() || !array.Opens(*text) {
			return
		}
		out, err := array.Expand(*text, array.Item{}, false)
		if err != nil || array.Uses(*text) {
			field, bad = name, problem{"has an expression, but the task has no array", expressionAlone + "; write $${{ for the text ${{"}
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
