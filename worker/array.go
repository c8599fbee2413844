package worker

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// runItems runs a task, or all items of an array that the attempt executes, one
// after another. The first item that fails ends the attempt.
func (w *Worker) runItems(a *attempt) *dtaskv1.Outcome {
	template := &a.run.body
	if err := taskbody.Decode(a.assignment.Body, template); err != nil {
		return failed(&notStartedError{err: err, fatal: true})
	}
	of := a.assignment.Extras.GetArray()
	if of == nil && !template.GetScheduled() {
		a.body = template
		return w.runTask(a)
	}
	run, err := a.scheduledRun(template)
	if err != nil {
		return failed(&notStartedError{err: err, fatal: errors.Is(err, errNoRun)})
	}
	if of == nil {
		if a.body, err = expand(template, array.Scope{Run: run}, false); err != nil {
			return failed(&notStartedError{err: fmt.Errorf("expanding the task: %w", err), fatal: true})
		}
		return w.runTask(a)
	}
	defer func() {
		if a.log != nil {
			a.log.end()
			a.log = nil
		}
	}()
	var outcome *dtaskv1.Outcome
	var results []json.RawMessage
	for i, index := range of.GetIndexes() {
		a.item = &array.Item{Index: index}
		if i < len(of.GetItems()) {
			a.item.JSON = of.GetItems()[i]
		}
		body, err := expand(template, array.Scope{Item: a.item, Run: run}, of.GetJsonPayload())
		if err != nil {
			return failed(&notStartedError{err: fmt.Errorf("expanding item %d: %w", index, err), fatal: true})
		}
		a.body = body
		outcome = w.runTask(a)
		if !of.GetChunked() {
			return outcome
		}
		if outcome.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED || a.ctx.Err() != nil {
			outcome.Error = clip(fmt.Sprintf("item %d: %s", index, outcome.GetError()), maxError)
			return outcome
		}
		results = append(results, resultJSON(outcome.GetResult()))
	}
	if outcome == nil {
		return failed(&notStartedError{err: errors.New("array task without items"), fatal: true})
	}
	outcome.Result = combined(results)
	return outcome
}

// resultJSON returns the result of an item as an element of a list: unchanged
// if it is JSON, otherwise as a string.
func resultJSON(result []byte) json.RawMessage {
	if json.Valid(result) {
		return result
	}
	text, _ := json.Marshal(string(result)) // never fails for strings
	return text
}

// combined returns the list of the items' results; nil if it is too long.
func combined(results []json.RawMessage) []byte {
	list, err := json.Marshal(results)
	if err != nil || len(list) > maxResult {
		return nil
	}
	return list
}

// expand returns the body of a task or an item: the template with its
// expressions replaced.
func expand(template *dtaskv1.TaskBody, scope array.Scope, payloadIsJSON bool) (*dtaskv1.TaskBody, error) {
	body := proto.CloneOf(template)
	var failed error
	taskbody.EachText(body, func(_ string, text *string) {
		expanded, err := array.Expand(*text, scope, false)
		*text, failed = expanded, errors.Join(failed, err)
	})
	if failed != nil {
		return nil, failed
	}
	payload, err := array.Expand(string(body.GetPayload()), scope, payloadIsJSON)
	if err != nil {
		return nil, err
	}
	if len(payload) > 0 {
		body.Payload = []byte(payload)
	}
	return body, nil
}
