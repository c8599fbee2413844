package session_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// FuzzSession is a worker that sends arbitrary messages: the leader continues
// to work, and another worker gets its welcome.
func FuzzSession(f *testing.F) {
	at := &dtaskv1.AttemptRef{Job: 1, Task: 0, Attempt: 1}
	for _, messages := range [][]*dtaskv1.SessionRequest{
		{{Hello: helloOf("w", 2)}, {Reports: &dtaskv1.Reports{Outcomes: outcomesOf(1, succeeded, at, at)}}},
		{{Hello: helloOf("w", 70000, at)}, {Leaving: true, Heartbeat: 7}},
		{{Heartbeat: 1}},
		{{Hello: helloOf("w", 1)}, {Hello: helloOf("v", 1)}, {Reports: &dtaskv1.Reports{Outcomes: outcomesOf(9, released, at)}}},
		{{Hello: helloOf("w", 1)}, {Reports: &dtaskv1.Reports{Outcomes: &dtaskv1.Outcomes{First: 1, Jobs: []uint64{1, 2}, Tasks: []uint32{0}, Attempts: []uint32{1}}}}, {Heartbeat: 3}},
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

// FuzzSessions is a process that sends arbitrary frames: the leader continues
// to work, and a worker on another stream gets its welcome.
func FuzzSessions(f *testing.F) {
	at := &dtaskv1.AttemptRef{Job: 1, Task: 0, Attempt: 1}
	frame := func(session uint32, m *dtaskv1.SessionRequest) *dtaskv1.RequestFrame {
		return &dtaskv1.RequestFrame{Session: session, Message: m}
	}
	for _, frames := range [][]*dtaskv1.RequestFrame{
		{frame(1, &dtaskv1.SessionRequest{Hello: helloOf("w", 2)}), frame(1, &dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Outcomes: outcomesOf(1, succeeded, at)}})},
		{frame(2, &dtaskv1.SessionRequest{Hello: helloOf("w", 2)}), frame(1, &dtaskv1.SessionRequest{Hello: helloOf("v", 2)}), {Session: 2, End: true}, frame(2, &dtaskv1.SessionRequest{Heartbeat: 2})},
		{frame(1<<32-1, &dtaskv1.SessionRequest{Hello: helloOf("w", 1)}), frame(0, nil), {Session: 7, End: true}},
		{frame(1, nil), frame(1, &dtaskv1.SessionRequest{Hello: helloOf("w", 1)}), frame(1, &dtaskv1.SessionRequest{Heartbeat: 1, Leaving: true})},
		{frame(1, &dtaskv1.SessionRequest{Hello: helloOf("w", 1)}), frame(2, &dtaskv1.SessionRequest{Hello: helloOf("w", 1)}), frame(1, &dtaskv1.SessionRequest{Heartbeat: 1})},
	} {
		var b bytes.Buffer
		for n := range frames { // in messages of growing size
			if _, err := protodelim.MarshalTo(&b, &dtaskv1.SessionsRequest{Frames: frames[n:]}); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h := newHouse(t)
		h.lead(1)
		h.submit("k", 3, 10, nil)
		stream, err := dtaskv1.NewWorkerServiceClient(h.conn).Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		for r := bytes.NewReader(text); sent < 8; sent++ {
			m := new(dtaskv1.SessionsRequest)
			if protodelim.UnmarshalFrom(r, m) != nil {
				break
			}
			if err := stream.Send(m); err != nil {
				break // a message that is too large
			}
		}
		if sent == 0 {
			return
		}
		h.join(helloOf("well", 1))
		h.submit("after", 1, 10, nil)
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
	})
}
