// Package taskbody encodes and decodes task bodies. It is the only package
// that knows the fields of dtask.v1.TaskBody by number or lists them by name.
//
// A body is encoded once, when its job is submitted, and travels as bytes
// until a worker decodes it. What needs a single field on the way reads it
// from the encoded form. The tests compare everything here with the message's
// descriptor, so that a new field can't be forgotten.
package taskbody

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// CommandType is the type of tasks that have none, which are commands and
// scripts. Workers announce it like the types of their handlers.
const CommandType = "command"

// Numbers of the fields that are read from encoded bodies.
const (
	commandField  protowire.Number = 1
	runField      protowire.Number = 2
	outputField   protowire.Number = 4
	payloadField  protowire.Number = 5
	reuseKeyField protowire.Number = 6

	scheduledField protowire.Number = 9
)

// payloadTag precedes the payload in an encoded body.
const payloadTag = byte(payloadField)<<3 | byte(protowire.BytesType)

var deterministic = proto.MarshalOptions{Deterministic: true}

// Append appends the encoded body to b. Equal bodies have equal encodings.
//
// Most bodies of large jobs have only a payload. Encoding these by hand takes
// a fraction of the time.
func Append(b []byte, body *dtaskv1.TaskBody) ([]byte, error) {
	if !hasOnlyPayload(body) {
		encoded, err := deterministic.MarshalAppend(b, body)
		if err != nil {
			return b, fmt.Errorf("encoding task body: %w", err)
		}
		return encoded, nil
	}
	if len(body.GetPayload()) == 0 {
		return b, nil
	}
	return protowire.AppendBytes(append(b, payloadTag), body.GetPayload()), nil
}

func hasOnlyPayload(body *dtaskv1.TaskBody) bool {
	return len(body.GetCommand()) == 0 && body.GetRun() == "" && len(body.GetInputs()) == 0 && body.GetOutput() == "" &&
		body.GetReuseKey() == "" && body.GetCwd() == "" && body.GetStdin() == "" && !body.GetScheduled() && len(body.ProtoReflect().GetUnknown()) == 0
}

// Decode decodes an encoded body into an empty one, which may share its
// memory.
//
// Payload-only bodies are decoded by hand: proto.Unmarshal takes a sixth of
// the time of a task that does nothing.
func Decode(encoded []byte, body *dtaskv1.TaskBody) error {
	if payload, ok := PayloadOnly(encoded); ok {
		body.Payload = payload
		return nil
	}
	if err := proto.Unmarshal(encoded, body); err != nil {
		return fmt.Errorf("decoding task body: %w", err)
	}
	return nil
}

// PayloadOnly returns the payload of a body that has no other field and is
// encoded as Append does it. If ok is false, the body may have other fields or
// be malformed.
func PayloadOnly(encoded []byte) (payload []byte, ok bool) {
	if len(encoded) == 0 {
		return nil, true
	}
	if encoded[0] != payloadTag {
		return nil, false
	}
	payload, n := protowire.ConsumeBytes(encoded[1:])
	if n != len(encoded)-1 || n != protowire.SizeBytes(len(payload)) || len(payload) == 0 {
		return nil, false
	}
	return slices.Clip(payload), true
}

// WithPayload returns an encoded body with another payload.
func WithPayload(encoded, payload []byte) ([]byte, error) {
	body := new(dtaskv1.TaskBody)
	if err := Decode(encoded, body); err != nil {
		return nil, err
	}
	body.Payload = payload
	return Append(nil, body)
}

// Encoded is an encoded body. Its methods read one field and skip the others,
// since payloads may be long. They return the zero value if the field is not
// set or the body is malformed.
type Encoded []byte

// Payload returns the payload, which shares memory with the encoded body.
func (e Encoded) Payload() []byte { return e.field(payloadField) }

// Output returns the path or URL where the task publishes its output.
func (e Encoded) Output() string { return string(e.field(outputField)) }

// ReuseKey returns the key under which the task's result is remembered.
func (e Encoded) ReuseKey() string { return string(e.field(reuseKeyField)) }

// Scheduled reports whether workers replace the expressions of a task that has no array.
func (e Encoded) Scheduled() bool {
	for b := e; len(b) > 0; {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return false
		}
		if number == scheduledField && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b[tag:])
			return n > 0 && v != 0
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return false
		}
		b = b[tag+size:]
	}
	return false
}

// Executor returns "command" or "run" if the task has the field of that name;
// empty if a handler executes the task.
func (e Encoded) Executor() string {
	for b := e; len(b) > 0; {
		number, _, n := protowire.ConsumeField(b)
		switch {
		case n < 0:
			return ""
		case number == commandField:
			return "command"
		case number == runField:
			return "run"
		}
		b = b[n:]
	}
	return ""
}

// field returns the last value of a field, as proto.Unmarshal does.
func (e Encoded) field(want protowire.Number) (value []byte) {
	for b := e; len(b) > 0; {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return nil
		}
		if number == want && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[tag:])
		}
		b = b[tag+size:]
	}
	return value
}

// EachText calls f for each text of a body in which expressions may stand, with
// the name of its field in a job file. The payload is not among them: its
// expressions depend on whether it is JSON.
func EachText(body *dtaskv1.TaskBody, f func(field string, text *string)) {
	if body == nil {
		return
	}
	for i := range body.GetCommand() {
		f("command", &body.Command[i])
	}
	f("run", &body.Run)
	for i := range body.GetInputs() {
		f("inputs", &body.Inputs[i])
	}
	f("output", &body.Output)
	f("cwd", &body.Cwd)
	f("stdin", &body.Stdin)
	f("reuse.key", &body.ReuseKey)
}
