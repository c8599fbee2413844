package main

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// encoded is a codec for requests that are encoded already, as *[]byte. It drops responses. What it
// takes to encode a large request is thus not part of a measurement of what the call costs others.
type encoded struct{}

var _ encoding.CodecV2 = encoded{}

// Name implements encoding.CodecV2: for the server these are ordinary messages.
func (encoded) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (encoded) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("sending an encoded message: got %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (encoded) Unmarshal(mem.BufferSlice, any) error { return nil }
