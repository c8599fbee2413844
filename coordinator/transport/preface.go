package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every Raft connection opens with a preface, before raft sees a byte of it:
//
//	dialer   → "DTSK" version(1) length(2) { cluster, server, instance, target }
//	acceptor → status(1)         length(2) { cluster, server, instance, reason }
//
// Each string is one length byte and at most 255 bytes; numbers are big-endian.
// Afterwards both sides know their peer, or why they were refused.
const (
	prefaceMagic   = "DTSK"
	prefaceVersion = 1
	maxPreface     = 4 * 256 // four strings of at most 255 bytes

	statusAccepted = 1
	statusRefused  = 2
)

// Preface is how a server introduces itself.
type Preface struct {
	ClusterID string // "" while the server does not know its cluster
	ServerID  string
	Instance  string
	Target    string // server id that a dialer wants to reach; "" in an answer
}

var errPreface = errors.New("malformed preface")

// appendStrings appends length(2) and the strings, each truncated to 255 bytes.
func appendStrings(out []byte, strings ...string) []byte {
	start := len(out)
	out = append(out, 0, 0)
	for _, s := range strings {
		s = s[:min(len(s), 255)]
		out = append(out, byte(len(s))) //nolint:gosec // at most 255
		out = append(out, s...)
	}
	binary.BigEndian.PutUint16(out[start:], uint16(len(out)-start-2)) //nolint:gosec // at most maxPreface
	return out
}

// readStrings reads as many strings as appendStrings appended.
func readStrings(r io.Reader, strings ...*string) error {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return fmt.Errorf("reading preface: %w", err)
	}
	size := binary.BigEndian.Uint16(length[:])
	if size > maxPreface {
		return fmt.Errorf("%w: %d bytes", errPreface, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("reading preface: %w", err)
	}
	for _, s := range strings {
		if len(body) == 0 || len(body) < 1+int(body[0]) {
			return fmt.Errorf("%w: truncated string", errPreface)
		}
		*s, body = string(body[1:1+int(body[0])]), body[1+int(body[0]):]
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d extra bytes", errPreface, len(body))
	}
	return nil
}

func (p Preface) check() error {
	if p.ServerID == "" || p.Instance == "" {
		return fmt.Errorf("%w: missing server id or instance", errPreface)
	}
	return nil
}

// greet is the dialer's side of the preface. The magic is the kind of connection. The
// connection has a deadline.
func greet(conn io.ReadWriter, magic string, own Preface, target string) (peer Preface, err error) {
	hello := append([]byte(magic), prefaceVersion)
	hello = appendStrings(hello, own.ClusterID, own.ServerID, own.Instance, target)
	if _, err := conn.Write(hello); err != nil {
		return peer, fmt.Errorf("writing preface: %w", err)
	}
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return peer, fmt.Errorf("reading the answer to the preface: %w", err)
	}
	var reason string
	err = readStrings(conn, &peer.ClusterID, &peer.ServerID, &peer.Instance, &reason)
	if err = errors.Join(err, peer.check()); err != nil {
		return peer, err
	}
	switch status[0] {
	case statusAccepted:
		return peer, nil
	case statusRefused:
		return peer, &RefusedError{ServerID: own.ServerID, Reason: fmt.Sprintf("by %s: %s", peer.ServerID, reason)}
	default:
		return peer, fmt.Errorf("%w: status %d", errPreface, status[0])
	}
}

// readPreface is the acceptor's side, after the magic.
func readPreface(r io.Reader) (peer Preface, err error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return peer, fmt.Errorf("reading preface: %w", err)
	}
	if version[0] != prefaceVersion {
		return peer, fmt.Errorf("%w: unsupported version %d, want %d", errPreface, version[0], prefaceVersion)
	}
	if err := readStrings(r, &peer.ClusterID, &peer.ServerID, &peer.Instance, &peer.Target); err != nil {
		return peer, err
	}
	return peer, peer.check()
}

// reply writes the acceptor's answer; a nil refusal accepts.
func reply(w io.Writer, own Preface, refusal error) error {
	status, reason := byte(statusAccepted), ""
	if refusal != nil {
		status, reason = statusRefused, refusal.Error()
	}
	out := appendStrings([]byte{status}, own.ClusterID, own.ServerID, own.Instance, reason)
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("answering preface: %w", err)
	}
	return nil
}
