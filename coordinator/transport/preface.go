package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every Raft connection opens with a preface, before raft sees a byte of it:
//
//	dialler  → "DTSK" version(1) length(2) { cluster, server, instance, target }
//	acceptor → verdict(1)        length(2) { cluster, server, instance, reason }
//
// Each string is one length byte and at most 255 bytes, numbers are big-endian. Both
// sides know after it whom they talk to, and why not.
const (
	prefaceMagic   = "DTSK"
	prefaceVersion = 1
	maxPreface     = 4 * 256 // four strings of at most 255 bytes

	verdictAccepted = 1
	verdictRefused  = 2
)

// Preface is what a peer says of itself.
type Preface struct {
	ClusterID string // "" while the peer does not know its cluster
	ServerID  string
	Instance  string
	Target    string // server id that a dialler means to reach; "" in an answer
}

var errPreface = errors.New("malformed preface")

// appendStrings writes length(2) and the strings, each cut to 255 bytes.
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

// readStrings reads what appendStrings wrote of that many strings.
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
			return fmt.Errorf("%w: a string is cut short", errPreface)
		}
		*s, body = string(body[1:1+int(body[0])]), body[1+int(body[0]):]
	}
	if len(body) != 0 {
		return fmt.Errorf("%w: %d bytes too many", errPreface, len(body))
	}
	return nil
}

func (p Preface) check() error {
	if p.ServerID == "" || p.Instance == "" {
		return fmt.Errorf("%w: server id or instance is missing", errPreface)
	}
	return nil
}

// greet is the dialler's side of a kind of connection, named by its magic: it says
// who it is and reads who answers. The connection has a deadline.
func greet(conn io.ReadWriter, magic string, own Preface, target string) (peer Preface, err error) {
	hello := append([]byte(magic), prefaceVersion)
	hello = appendStrings(hello, own.ClusterID, own.ServerID, own.Instance, target)
	if _, err := conn.Write(hello); err != nil {
		return peer, fmt.Errorf("writing preface: %w", err)
	}
	var verdict [1]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return peer, fmt.Errorf("reading verdict: %w", err)
	}
	var reason string
	err = readStrings(conn, &peer.ClusterID, &peer.ServerID, &peer.Instance, &reason)
	if err = errors.Join(err, peer.check()); err != nil {
		return peer, err
	}
	switch verdict[0] {
	case verdictAccepted:
		return peer, nil
	case verdictRefused:
		return peer, &RefusedError{ServerID: own.ServerID, Reason: fmt.Sprintf("%s says: %s", peer.ServerID, reason)}
	default:
		return peer, fmt.Errorf("%w: verdict %d", errPreface, verdict[0])
	}
}

// readGreeting is the acceptor's side, after the magic.
func readGreeting(r io.Reader) (peer Preface, err error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return peer, fmt.Errorf("reading preface: %w", err)
	}
	if version[0] != prefaceVersion {
		return peer, fmt.Errorf("%w: version %d, this program speaks %d", errPreface, version[0], prefaceVersion)
	}
	if err := readStrings(r, &peer.ClusterID, &peer.ServerID, &peer.Instance, &peer.Target); err != nil {
		return peer, err
	}
	return peer, peer.check()
}

// answer writes the acceptor's verdict; a nil refusal accepts.
func answer(w io.Writer, own Preface, refusal error) error {
	verdict, reason := byte(verdictAccepted), ""
	if refusal != nil {
		verdict, reason = verdictRefused, refusal.Error()
	}
	out := appendStrings([]byte{verdict}, own.ClusterID, own.ServerID, own.Instance, reason)
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("writing verdict: %w", err)
	}
	return nil
}
