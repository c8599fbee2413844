package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// plaintextNotice is what a gRPC client without TLS shows its user.
const plaintextNotice = "this port requires TLS: use --ca-file with the ca.crt of the cluster"

const (
	frameHeader = 9 // length(3) type(1) flags(1) stream(4), RFC 9113 §4.1
	frameLimit  = 1 << 14

	frameHeaders, frameSettings = 1, 4
	endOfStream, endOfHeaders   = 0x1, 0x4

	// rejectTimeout bounds how long a client is answered whose connection is refused.
	rejectTimeout = time.Second
)

// rejectPlaintext answers the calls of a gRPC client without TLS with the reason for which
// they are refused. Some of what the client sent was read before.
func (m *Mux) rejectPlaintext(raw net.Conn, read []byte) {
	if strings.HasPrefix(string(read), grpcMagic) {
		m.rejectCalls(raw, read, codes.Unauthenticated, plaintextNotice)
	}
}

// rejectCalls answers the calls of a gRPC client, for a second, with a code and the reason
// for which they are refused, which is shorter than 127 bytes: the client may begin with one
// that only looks whether someone answers, and repeats calls. Otherwise the client would
// only see that its connection breaks, and would try again. Some of what the client sent was
// read before.
func (m *Mux) rejectCalls(conn net.Conn, read []byte, code codes.Code, reason string) {
	const preface = grpcMagic + "* HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if conn.SetDeadline(time.Now().Add(m.rejecting)) != nil {
		return
	}
	client := io.MultiReader(bytes.NewReader(read), conn)
	got := make([]byte, len(preface))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != preface {
		return
	}
	// Clients tell by the empty settings that the port does not serve plaintext.
	if _, err := conn.Write(http2Frame(frameSettings, 0, 0, nil)); err != nil {
		return
	}
	for range 100 { // frames, of a few calls
		kind, stream, err := skipFrame(client)
		if err != nil {
			return
		}
		if kind != frameHeaders {
			continue
		}
		if _, err := conn.Write(http2Frame(frameHeaders, endOfStream|endOfHeaders, stream, trailers(code, reason))); err != nil {
			return
		}
	}
}

// http2Frame returns a frame.
func http2Frame(kind, flags byte, stream uint32, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body))<<8|uint32(kind)) //nolint:gosec // a short text
	out = append(out, flags)
	return append(binary.BigEndian.AppendUint32(out, stream), body...)
}

// skipFrame reads a frame.
func skipFrame(r io.Reader) (kind byte, stream uint32, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, 0, err
	}
	length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
	if length > frameLimit {
		return 0, 0, errors.New("frame too long")
	}
	_, err = io.CopyN(io.Discard, r, length)
	return header[3], binary.BigEndian.Uint32(header[5:]) &^ (1 << 31), err
}

// trailers is a response of gRPC without a message. The fields are literals without Huffman
// coding, RFC 7541 §6.2.2.
func trailers(code codes.Code, reason string) []byte {
	const status200 = 0x88 // in the static table
	out := bytes.NewBuffer([]byte{status200})
	fields := [][2]string{{"content-type", "application/grpc"}, {"grpc-status", strconv.Itoa(int(code))}, {"grpc-message", reason}}
	for _, field := range fields {
		out.WriteByte(0)
		for _, text := range field {
			out.WriteByte(byte(len(text))) //nolint:gosec // shorter than 127 bytes, see rejectCalls
			out.WriteString(text)
		}
	}
	return out.Bytes()
}
