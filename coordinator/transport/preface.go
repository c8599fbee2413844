package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Every Raft connection opens with a preface, before raft sees a byte of it:
//
//	dialer   → "DTSK" version(1) length(2) { cluster, server, instance, target, levels… }
//	acceptor → status(1)         length(2) { cluster, server, instance, reason, levels… }
//
// The levels are three strings: the cluster's level, the highest one that the build
// supports, both in decimal, and the build's version. Each string is one length byte and
// at most 255 bytes; the length before them is big-endian. Further strings are ignored,
// so that a later build can add some. Afterwards both sides know their peer, or why they
// were refused.
const (
	prefaceMagic   = "DTSK"
	prefaceVersion = 2
	maxPreface     = 16 * 256 // more than twice what this build writes

	statusAccepted = 1
	statusRefused  = 2
)

// Preface is how a server introduces itself.
type Preface struct {
	ClusterID string // "" while the server does not know its cluster
	ServerID  string
	Instance  string
	Target    string // server id that a dialer wants to reach; "" in an answer
	Levels    Levels
}

// Levels is what a server announces about feature levels.
type Levels struct {
	Cluster uint32 // the cluster's level, as far as the server has applied the log
	Max     uint32 // highest level that its build supports; 0 = 1
	Version string // of its build
}

// strings returns the levels in the form of a preface.
func (l Levels) strings() []string {
	return []string{strconv.FormatUint(uint64(l.Cluster), 10), strconv.FormatUint(uint64(l.Max), 10), l.Version}
}

// parseLevels is the inverse of strings.
func parseLevels(cluster, highest, version string) (Levels, error) {
	c, errC := strconv.ParseUint(cluster, 10, 32)
	m, errM := strconv.ParseUint(highest, 10, 32)
	if err := errors.Join(errC, errM); err != nil {
		return Levels{}, fmt.Errorf("%w: %w", errPreface, err)
	}
	return Levels{Cluster: uint32(c), Max: uint32(m), Version: version}, nil
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

// readStrings reads the first of the strings that appendStrings appended.
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
	return nil
}

// readPeer reads the strings of a preface, of which the fourth one is target or reason.
func readPeer(r io.Reader, fourth *string) (peer Preface, err error) {
	var cluster, highest, version string
	err = readStrings(r, &peer.ClusterID, &peer.ServerID, &peer.Instance, fourth, &cluster, &highest, &version)
	if err != nil {
		return peer, err
	}
	if peer.Levels, err = parseLevels(cluster, highest, version); err != nil {
		return peer, err
	}
	return peer, peer.check()
}

// writtenPreface returns what readPeer reads.
func writtenPreface(out []byte, p Preface, fourth string) []byte {
	return appendStrings(out, slices.Concat([]string{p.ClusterID, p.ServerID, p.Instance, fourth}, p.Levels.strings())...)
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
	if _, err := conn.Write(writtenPreface(hello, own, target)); err != nil {
		return peer, fmt.Errorf("writing preface: %w", err)
	}
	var status [1]byte
	if _, err := io.ReadFull(conn, status[:]); err != nil {
		return peer, fmt.Errorf("reading the answer to the preface: %w", err)
	}
	var reason string
	if peer, err = readPeer(conn, &reason); err != nil {
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
	switch version[0] {
	case prefaceVersion:
	case 1:
		return peer, fmt.Errorf("%w: unsupported version 1, want %d: the peer is a build without feature levels, "+
			"which cannot be upgraded while the cluster runs", errPreface, prefaceVersion)
	default:
		return peer, fmt.Errorf("%w: unsupported version %d, want %d", errPreface, version[0], prefaceVersion)
	}
	var target string
	peer, err = readPeer(r, &target)
	peer.Target = target
	return peer, err
}

// reply writes the acceptor's answer; a nil refusal accepts.
func reply(w io.Writer, own Preface, refusal error) error {
	status, reason := byte(statusAccepted), ""
	if refusal != nil {
		status, reason = statusRefused, refusal.Error()
	}
	if _, err := w.Write(writtenPreface([]byte{status}, own, reason)); err != nil {
		return fmt.Errorf("answering preface: %w", err)
	}
	return nil
}
