package columns

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// payloadTag is in front of TaskBody.payload.
var payloadTag = protowire.AppendTag(nil, 5, protowire.BytesType)

// AppendBody encodes the body of a task: the same bytes for the same body.
//
// Most bodies of large jobs are a payload and nothing else. These are written
// without a walk over all fields.
func AppendBody(b []byte, body *dtaskv1.TaskBody) ([]byte, error) {
	plain := len(body.GetCommand()) == 0 && body.GetRun() == "" && len(body.GetInputs()) == 0 && body.GetOutput() == "" &&
		body.GetReuseKey() == "" && len(body.ProtoReflect().GetUnknown()) == 0
	if !plain {
		encoded, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, body)
		if err != nil {
			return b, fmt.Errorf("encoding the body of a task: %w", err)
		}
		return encoded, nil
	}
	if len(body.GetPayload()) == 0 {
		return b, nil
	}
	return protowire.AppendBytes(append(b, payloadTag...), body.GetPayload()), nil
}

// Payload gives the payload of an encoded body that has nothing else and is as
// AppendBody writes it. False: it may hold more, or be no body at all.
func Payload(body []byte) (payload []byte, plain bool) {
	if len(body) == 0 {
		return nil, true
	}
	if body[0] != payloadTag[0] {
		return nil, false
	}
	payload, n := protowire.ConsumeBytes(body[1:])
	if n != len(body)-1 || n != protowire.SizeBytes(len(payload)) || len(payload) == 0 {
		return nil, false
	}
	return payload, true
}
