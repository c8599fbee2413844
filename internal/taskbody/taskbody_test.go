package taskbody

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fields returns the descriptor's list of a body's fields.
func fields() []protoreflect.FieldDescriptor {
	all := (&dtaskv1.TaskBody{}).ProtoReflect().Descriptor().Fields()
	list := make([]protoreflect.FieldDescriptor, all.Len())
	for i := range list {
		list[i] = all.Get(i)
	}
	return list
}

// set gives a field two values if it is a list, one otherwise.
func set(t *testing.T, body *dtaskv1.TaskBody, field protoreflect.FieldDescriptor) {
	t.Helper()
	var value protoreflect.Value
	switch field.Kind() {
	case protoreflect.StringKind:
		value = protoreflect.ValueOfString("value of " + string(field.Name()))
	case protoreflect.BytesKind:
		value = protoreflect.ValueOfBytes([]byte("value of " + field.Name()))
	case protoreflect.BoolKind:
		value = protoreflect.ValueOfBool(true)
	default:
		t.Fatalf("the test can't set field %s of kind %s", field.Name(), field.Kind())
	}
	m := body.ProtoReflect()
	if field.IsList() {
		m.Mutable(field).List().Append(value)
		m.Mutable(field).List().Append(value)
		return
	}
	m.Set(field, value)
}

func marshal(t *testing.T, body *dtaskv1.TaskBody) []byte {
	t.Helper()
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// fullBody has all fields of the descriptor.
func fullBody(t *testing.T) *dtaskv1.TaskBody {
	t.Helper()
	body := &dtaskv1.TaskBody{}
	for _, f := range fields() {
		set(t, body, f)
	}
	return body
}

func TestEveryFieldIsEncodedAndDecoded(t *testing.T) {
	t.Parallel()
	for _, first := range fields() {
		for _, second := range fields() {
			body := &dtaskv1.TaskBody{}
			set(t, body, first)
			if second != first {
				set(t, body, second)
			}
			encoded, err := Append([]byte("prefix"), body)
			if want := append([]byte("prefix"), marshal(t, body)...); err != nil || !bytes.Equal(encoded, want) {
				t.Errorf("%v is encoded as %x, %v; want %x", body, encoded, err, want)
				continue
			}
			decoded := &dtaskv1.TaskBody{}
			if err := Decode(encoded[len("prefix"):], decoded); err != nil || !proto.Equal(decoded, body) {
				t.Errorf("%v is decoded as %v, %v", body, decoded, err)
			}
		}
	}
}

func TestBodyIsEncodedAsProtobufDoes(t *testing.T) {
	t.Parallel()
	unknown := &dtaskv1.TaskBody{Payload: []byte("p")}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), 1))
	for _, c := range []struct {
		body        *dtaskv1.TaskBody
		payloadOnly bool
	}{
		{nil, true},
		{&dtaskv1.TaskBody{}, true},
		{&dtaskv1.TaskBody{Payload: []byte("p")}, true},
		{&dtaskv1.TaskBody{Payload: make([]byte, 300)}, true},
		{fullBody(t), false},
		{unknown, false},
	} {
		want := marshal(t, c.body)
		got, err := Append([]byte("prefix"), c.body)
		if err != nil || !bytes.Equal(got, append([]byte("prefix"), want...)) {
			t.Errorf("%v is encoded as %x, %v; want %x", c.body, got, err, want)
		}
		if payload, ok := PayloadOnly(want); ok != c.payloadOnly || ok && !bytes.Equal(payload, c.body.GetPayload()) {
			t.Errorf("%v: PayloadOnly = %x, %v; want %v", c.body, payload, ok, c.payloadOnly)
		}
	}
}

func TestPayloadOnlyRejectsOtherEncodings(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{
		"empty payload":       {0x2a, 0},
		"overlong length":     {0x2a, 0x81, 0x00, 'p'},
		"two payloads":        {0x2a, 1, 'p', 0x2a, 1, 'q'},
		"truncated payload":   {0x2a, 5, 'p'},
		"missing length":      {0x2a},
		"field before":        {0x12, 1, 'r', 0x2a, 1, 'p'},
		"overlong tag":        {0xaa, 0x80, 0x00, 1, 'p'},
		"length out of range": {0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		if payload, ok := PayloadOnly(body); ok {
			t.Errorf("%s: PayloadOnly returned %x", name, payload)
		}
	}
}

func TestSingleFieldsAreReadFromEncodedBodies(t *testing.T) {
	t.Parallel()
	body := fullBody(t)
	e := Encoded(marshal(t, body))
	if got := e.Payload(); !bytes.Equal(got, body.GetPayload()) {
		t.Errorf("payload %q, want %q", got, body.GetPayload())
	}
	if got := e.Output(); got != body.GetOutput() {
		t.Errorf("output %q, want %q", got, body.GetOutput())
	}
	if got := e.ReuseKey(); got != body.GetReuseKey() {
		t.Errorf("reuse key %q, want %q", got, body.GetReuseKey())
	}
	if !e.Scheduled() || Encoded(marshal(t, &dtaskv1.TaskBody{Run: "r", Payload: []byte("p")})).Scheduled() {
		t.Error("scheduled is read wrongly")
	}
	for want, body := range map[string]*dtaskv1.TaskBody{
		"":        {Payload: []byte("p"), Output: "o", Inputs: []string{"i"}},
		"command": {Command: []string{"c"}, Payload: []byte("p")},
		"run":     {Run: "r", Payload: []byte("p")},
	} {
		if got := Encoded(marshal(t, body)).Executor(); got != want {
			t.Errorf("executor of %v is %q, want %q", body, got, want)
		}
	}
}

// Encoded bodies that are malformed read as empty, as a payload that is set
// twice reads as its last value.
func TestSingleFieldsOfOddEncodings(t *testing.T) {
	t.Parallel()
	if got := Encoded([]byte{0x2a, 1, 'p', 0x2a, 1, 'q'}).Payload(); string(got) != "q" {
		t.Errorf("of two payloads %q was read, want the last", got)
	}
	for _, malformed := range []Encoded{{0x2a, 5, 'p'}, {0x80}, {0x2a, 1, 'p', 0x12}} {
		if malformed.Payload() != nil || malformed.Output() != "" || malformed.Executor() != "" || malformed.Scheduled() {
			t.Errorf("malformed body %x isn't read as empty", malformed)
		}
	}
}

func TestPayloadIsReplacedAndAllOtherFieldsAreKept(t *testing.T) {
	t.Parallel()
	want := fullBody(t)
	replaced, err := WithPayload(marshal(t, want), []byte("new"))
	want.Payload = []byte("new")
	got := &dtaskv1.TaskBody{}
	if err != nil || proto.Unmarshal(replaced, got) != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := WithPayload([]byte{0x80}, nil); err == nil {
		t.Error("a malformed body was accepted")
	}
}

func TestEachTextVisitsEveryText(t *testing.T) {
	t.Parallel()
	body := fullBody(t)
	var want []string
	for _, f := range fields() {
		if f.Kind() != protoreflect.StringKind {
			continue
		}
		want = append(want, "value of "+string(f.Name()))
		if f.IsList() {
			want = append(want, "value of "+string(f.Name()))
		}
	}
	var got []string
	EachText(body, func(_ string, text *string) {
		got = append(got, *text)
		*text = "changed"
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("EachText visited %q, want %q", got, want)
	}
	EachText(body, func(field string, text *string) {
		if *text != "changed" {
			t.Errorf("the text of %s was not changed in place", field)
		}
	})
	EachText(nil, func(field string, _ *string) { t.Errorf("visited %s of no body", field) })
}

// FuzzDecode checks that Decode agrees with proto.Unmarshal, and that what
// PayloadOnly accepts is encoded to the same bytes again.
func FuzzDecode(f *testing.F) {
	for _, body := range []*dtaskv1.TaskBody{
		{}, {Payload: []byte("p")}, {Payload: make([]byte, 300)}, {Run: "true"}, {Payload: []byte("p"), ReuseKey: "k"}, {Command: []string{"a", "b"}, Output: "/o"},
	} {
		encoded, err := proto.Marshal(body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Add([]byte{0x2a, 0x00})                   // empty payload
	f.Add([]byte{0x2a, 0x01, 'a', 0x2a, 0, 7})  // two payloads and trailing bytes
	f.Add([]byte{0x2a, 0x85, 0x80, 0x00, 'a'})  // truncated
	f.Add([]byte{0x2a, 0x81, 0x80, 0x00, 'a'})  // overlong length
	f.Add([]byte{0xaa, 0x80, 0x00, 0x01, 'a'})  // overlong tag
	f.Add([]byte{0x2d, 0x01, 0x00, 0x00, 0x00}) // wrong wire type
	f.Fuzz(func(t *testing.T, encoded []byte) {
		want := new(dtaskv1.TaskBody)
		wantErr := proto.Unmarshal(encoded, want)
		got := new(dtaskv1.TaskBody)
		err := Decode(encoded, got)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Errorf("decoded %v, %v; want %v, %v", got, err, want, wantErr)
		}
		if payload, ok := PayloadOnly(encoded); ok {
			again, err := Append(nil, &dtaskv1.TaskBody{Payload: payload})
			if err != nil || !bytes.Equal(again, encoded) {
				t.Errorf("%x is payload-only, but is encoded as %x: %v", encoded, again, err)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	buf := make([]byte, 0, 256)
	body := &dtaskv1.TaskBody{Payload: make([]byte, 100)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Append(buf, body); err != nil {
			b.Fatal(err)
		}
	}
}
