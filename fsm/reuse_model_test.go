package fsm

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// modelResult is the result of a pure task.
type modelResult struct {
	from, output, result, outSHA string
	outSize, expires             int64
}

// pure returns the key of a pure task in the table, and its output.
func (j *modelJob) pure(t *modelTask) (key, output string) {
	body := new(dtaskv1.TaskBody)
	if t.newBody || j.policies[t.policy].GetReuseMs() == 0 || proto.Unmarshal([]byte(t.body), body) != nil || body.GetReuseKey() == "" {
		return "", ""
	}
	return "\x00" + body.GetReuseKey(), body.GetOutput() // jobs of tests have no owner
}

func (w *model) keepResult(it RememberItem) string {
	j, t, r := w.task(it.Task)
	switch {
	case r != "":
		return r
	case it.Expires <= w.now:
		return "malformed"
	}
	key, output := j.pure(t)
	if key == "" || t.state != "completed" || t.reused != "" {
		return "wrong state"
	}
	w.results[key] = modelResult{fmt.Sprintf("%d/%s", j.id, t.name), output, t.result, t.outSHA, t.outSize, it.Expires}
	return "accepted"
}

func (w *model) reuse(at TaskRef) string {
	j, t, r := w.task(at)
	if r != "" {
		return r
	}
	key, output := j.pure(t)
	x, known := w.results[key]
	if t.state != "pending" || key == "" || !known || x.expires <= w.now || x.output != output {
		return "wrong state"
	}
	w.count("task completed")
	t.state, t.started, t.ended, t.worker, t.err = "completed", w.now, w.now, 0, ""
	t.result, t.outSHA, t.outSize, t.reused = x.result, x.outSHA, x.outSize, x.from
	t.accepted++
	if j.state == "pending" {
		j.state, j.started = "running", w.now
	}
	w.makeReady(j)
	w.settle(j)
	return "accepted"
}

func (w *model) forgetResult(key string) string {
	if _, known := w.results[key]; !known {
		return "key not found"
	}
	delete(w.results, key)
	return "accepted"
}
