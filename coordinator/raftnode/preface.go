package raftnode

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
// Each string is one length byte and its bytes; the reason is cut to fit. Numbers are
// big-endian. Both sides know after it whom they talk to, and why not.
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
	Target    string // server id that the dialler means to reach; in an answer, the reason of a refusal
}

var errPreface = errors.New("malformed preface")

func (p Preface) append(out []byte) []byte {
	start := len(out)
	out = append(out, 0, 0)
	for _, s := range []string{p.ClusterID, p.ServerID, p.Instance, p.Target} {
		if len(s) > 255 {
			s = s[:255]
		}
		out = append(out, byte(len(s))) //nolint:gosec // at most 255
		out = append(out, s...)
	}
	binary.BigEndian.PutUint16(out[start:], uint16(len(out)-start-2)) //nolint:gosec // at most maxPreface
	return out
}

func readPreface(r io.Reader) (p Preface, err error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return p, fmt.Errorf("reading preface: %w", err)
	}
	size := binary.BigEndian.Uint16(length[:])
	if size > maxPreface {
		return p, fmt.Errorf("%w: %d bytes", errPreface, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return p, fmt.Errorf("reading preface: %w", err)
	}
	for _, field := range []*string{&p.ClusterID, &p.ServerID, &p.Instance, &p.Target} {
		if len(body) == 0 || len(body) < 1+int(body[0]) {
			return p, fmt.Errorf("%w: a string is cut short", errPreface)
		}
		*field, body = string(body[1:1+int(body[0])]), body[1+int(body[0]):]
	}
	if len(body) != 0 {
		return p, fmt.Errorf("%w: %d bytes too many", errPreface, len(body))
	}
	if p.ServerID == "" || p.Instance == "" {
		return p, fmt.Errorf("%w: server id or instance is missing", errPreface)
	}
	return p, nil
}

// greet is the dialler's side: it says who it is and reads who answers. The
// connection has a deadline.
func greet(conn io.ReadWriter, own Identity, target string) (peer Preface, err error) {
	hello := append([]byte(prefaceMagic), prefaceVersion)
	hello = Preface{ClusterID: own.ClusterID, ServerID: own.ServerID, Instance: own.Instance, Target: target}.append(hello)
	if _, err := conn.Write(hello); err != nil {
		return peer, fmt.Errorf("writing preface: %w", err)
	}
	var verdict [1]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return peer, fmt.Errorf("reading verdict: %w", err)
	}
	peer, err = readPreface(conn)
	if err != nil {
		return peer, err
	}
	switch verdict[0] {
	case verdictAccepted:
		return peer, nil
	case verdictRefused:
		return peer, &RefusedError{ServerID: own.ServerID, Reason: fmt.Sprintf("%s says: %s", peer.ServerID, peer.Target)}
	default:
		return peer, fmt.Errorf("%w: verdict %d", errPreface, verdict[0])
	}
}

// readGreeting is the acceptor's side, after the magic.
func readGreeting(r io.Reader) (Preface, error) {
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return Preface{}, fmt.Errorf("reading preface: %w", err)
	}
	if version[0] != prefaceVersion {
		return Preface{}, fmt.Errorf("%w: version %d, this program speaks %d", errPreface, version[0], prefaceVersion)
	}
	return readPreface(r)
}

// answer writes the acceptor's verdict; a nil refusal accepts.
func answer(w io.Writer, own Identity, refusal error) error {
	verdict, reason := byte(verdictAccepted), ""
	if refusal != nil {
		verdict, reason = verdictRefused, refusal.Error()
	}
	out := Preface{ClusterID: own.ClusterID, ServerID: own.ServerID, Instance: own.Instance, Target: reason}.append([]byte{verdict})
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("writing verdict: %w", err)
	}
	return nil
}
