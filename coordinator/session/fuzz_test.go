package session_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// FuzzSession is a worker that says anything: the leader goes on, and another worker
// gets its welcome.
func FuzzSession(f *testing.F) {
	at := &dtaskv1.AttemptRef{Job: 1, Task: 0, Attempt: 1}
	for _, messages := range [][]*dtaskv1.SessionRequest{
		{{Hello: helloOf("w", 2)}, {Reports: &dtaskv1.Reports{Outcomes: outcomesOf(1, succeeded, at, at)}}},
		{{Hello: helloOf("w", 70000, at)}, {Leaving: true, Beat: 7}},
		{{Beat: 1}},
		{{Hello: helloOf("w", 1)}, {Hello: helloOf("v", 1)}, {Reports: &dtaskv1.Reports{Outcomes: outcomesOf(9, released, at)}}},
		{{Hello: helloOf("w", 1)}, {Reports: &dtaskv1.Reports{Outcomes: &dtaskv1.Outcomes{First: 1, Jobs: []uint64{1, 2}, Tasks: []uint32{0}, Attempts: []uint32{1}}}}, {Beat: 3}},
		{{Hello: helloOf("w", 1)}, {Reports: &dtaskv1.Reports{Outcomes: &dtaskv1.Outcomes{First: 1, Jobs: []uint64{1}, Tasks: []uint32{0}, Attempts: []uint32{1}, ResultSizes: []uint32{1 << 31}}}}},
	} {
		var b bytes.Buffer
		for _, m := range messages {
			if _, err := protodelim.MarshalTo(&b, m); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var messages []*dtaskv1.SessionRequest
		for r := bytes.NewReader(text); len(messages) < 8; {
			m := new(dtaskv1.SessionRequest)
			if protodelim.UnmarshalFrom(r, m) != nil {
				break
			}
			messages = append(messages, m)
		}
		if len(messages) == 0 {
			return
		}
		h := newHouse(t)
		h.lead(1)
		h.submit("k", 3, 10, nil)
		p := h.dial()
		for _, m := range messages {
			p.say(m)
		}
		if err := p.stream.CloseSend(); err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		h.join(helloOf("well", 1))
		h.submit("after", 1, 10, nil)
	})
}
