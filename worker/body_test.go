package worker

import (
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// FuzzBody: a body that is read by hand is what proto.Unmarshal makes of it.
func FuzzBody(f *testing.F) {
	for _, body := range []*dtaskv1.TaskBody{
		{}, {Payload: []byte("p")}, {Payload: make([]byte, 300)}, {Run: "true"}, {Payload: []byte("p"), ReuseKey: "k"}, {Command: []string{"a", "b"}, Output: "/o"},
	} {
		f.Add(encoded(body))
	}
	f.Add([]byte{0x2a, 0x00})                   // a payload of no bytes
	f.Add([]byte{0x2a, 0x01, 'a', 0x2a, 0, 7})  // two payloads, and more
	f.Add([]byte{0x2a, 0x85, 0x80, 0x00, 'a'})  // too short
	f.Add([]byte{0x2a, 0x81, 0x80, 0x00, 'a'})  // a length that is longer than it need be
	f.Add([]byte{0xaa, 0x80, 0x00, 0x01, 'a'})  // a tag that is
	f.Add([]byte{0x2d, 0x01, 0x00, 0x00, 0x00}) // not bytes
	f.Fuzz(func(t *testing.T, raw []byte) {
		want := new(dtaskv1.TaskBody)
		wantErr := proto.Unmarshal(raw, want)
		got := new(dtaskv1.TaskBody)
		err := readBody(raw, got)
		if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
			t.Errorf("read %v, %v; want %v, %v", got, err, want, wantErr)
		}
	})
}
