package netns

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// captureBuffer is what the kernel keeps of packets that were not read yet, in bytes.
	captureBuffer = 64 << 20
	// maxFrame bounds a frame: the kernel joins segments that stay on one machine.
	maxFrame = 1 << 17
)

// A Capture is a copy of all that the hosts of a network send to each other. One goroutine
// reads it until Stop.
type Capture struct {
	socket  *os.File
	reading sync.WaitGroup
	buffer  []byte
	err     error // of the goroutine

	connections map[ends]*segments // the last one of each pair of addresses
	done        []Stream           // of earlier ones
	other       []byte             // frames without TCP
}

// A Stream is what one side of a TCP connection sent.
type Stream struct {
	From, To netip.AddrPort
	Data     []byte
}

// ends are the addresses of a connection.
type ends struct{ from, to netip.AddrPort }

// segments are parts of a stream, in the order of their arrival.
type segments struct {
	first uint32 // sequence number of the first byte
	list  []segment
}

type segment struct {
	offset uint32
	data   []byte
}

// Capture starts to read what the hosts of a network of NewMachines send. The caller stops
// it before the network is closed.
func (n *Network) Capture() (*Capture, error) {
	c := &Capture{buffer: make([]byte, maxFrame), connections: make(map[ends]*segments)}
	err := within(n.bridge, func() (err error) {
		c.socket, err = openCapture()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capturing packets: %w", err)
	}
	c.reading.Go(func() { c.err = c.read() })
	return c, nil
}

// openCapture opens a socket for the packets of all interfaces in the namespace of this
// thread: those of the ports of the bridge.
func openCapture() (*os.File, error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in the byte order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer); err != nil {
		return nil, errors.Join(os.NewSyscallError("setsockopt", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "packets"), nil
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// Stop stops the capture. It returns what each side of each connection sent, and all
// frames of other protocols. It fails if anything is missing.
func (c *Capture) Stop() (streams []Stream, other []byte, err error) {
	err = c.socket.SetReadDeadline(longAgo)
	c.reading.Wait()
	if err = errors.Join(err, c.err, c.drain(), c.socket.Close()); err != nil {
		return nil, nil, fmt.Errorf("capturing packets: %w", err)
	}
	for at := range c.connections {
		if err := c.finish(at); err != nil {
			return nil, nil, err
		}
	}
	return c.done, c.other, nil
}

// drain takes the packets that have arrived and were not read. It fails if the kernel had
// no memory for others.
func (c *Capture) drain() error {
	conn, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	var lost *unix.TpacketStats
	err = conn.Control(func(fd uintptr) {
		for failed == nil {
			failed = c.receive(int(fd))
		}
		if errors.Is(failed, unix.EAGAIN) {
			lost, failed = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
		}
	})
	switch err := errors.Join(err, failed); {
	case err != nil:
		return err
	case lost.Drops > 0:
		return fmt.Errorf("the kernel dropped %d packets", lost.Drops)
	}
	return nil
}

// read reads packets until the deadline of Stop.
func (c *Capture) read() error {
	conn, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		for failed == nil {
			failed = c.receive(int(fd))
		}
		if errors.Is(failed, unix.EAGAIN) {
			failed = nil
			return false // wait for more
		}
		return true
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, failed)
}

// receive takes one packet.
func (c *Capture) receive(fd int) error {
	n, from, err := unix.Recvfrom(fd, c.buffer, 0)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return err
	}
	// Each frame passes two ports: it comes in at one and goes out at the other.
	if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype != unix.PACKET_OUTGOING {
		return c.take(c.buffer[:n])
	}
	return nil
}

// take keeps the payload of a frame.
func (c *Capture) take(frame []byte) error {
	at, tcp, ok := parseFrame(frame)
	if !ok {
		c.other = append(c.other, frame...)
		return nil
	}
	sequence, start, syn := binary.BigEndian.Uint32(tcp[4:]), int(tcp[12]>>4)*4, tcp[13]&2 != 0
	if start > len(tcp) {
		return fmt.Errorf("malformed segment from %s", at.from)
	}
	s := c.connections[at]
	if syn && s != nil && s.first != sequence+1 { // another connection with the same ports
		if err := c.finish(at); err != nil {
			return err
		}
		s = nil
	}
	switch {
	case syn && s == nil:
		c.connections[at] = &segments{first: sequence + 1}
	case len(tcp) == start: // nothing but flags, such as those of a refusal
	case s == nil:
		return fmt.Errorf("the connection from %s to %s began before the capture", at.from, at.to)
	default:
		s.list = append(s.list, segment{sequence - s.first, slices.Clone(tcp[start:])})
	}
	return nil
}

// finish puts the segments of a connection together.
func (c *Capture) finish(at ends) error {
	list := c.connections[at].list
	delete(c.connections, at)
	slices.SortStableFunc(list, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	var data []byte
	for _, s := range list {
		have := len(data) - int(s.offset) // repeated bytes
		if have < 0 {
			return fmt.Errorf("capturing packets: %d bytes from %s to %s are missing", -have, at.from, at.to)
		}
		if have < len(s.data) {
			data = append(data, s.data[have:]...)
		}
	}
	c.done = append(c.done, Stream{From: at.from, To: at.to, Data: data})
	return nil
}

// parseFrame returns the segment of an Ethernet frame with TCP over IPv4.
func parseFrame(frame []byte) (at ends, tcp []byte, ok bool) {
	const ethernet, minIP, minTCP = 14, 20, 20
	if len(frame) < ethernet+minIP || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[ethernet+9] != unix.IPPROTO_TCP {
		return ends{}, nil, false
	}
	packet := frame[ethernet:]
	header, total := int(packet[0]&15)*4, int(binary.BigEndian.Uint16(packet[2:]))
	if header < minIP || total > len(packet) || total < header+minTCP {
		return ends{}, nil, false
	}
	tcp = packet[header:total]
	address := func(ip, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip)), binary.BigEndian.Uint16(port))
	}
	return ends{address(packet[12:16], tcp[0:2]), address(packet[16:20], tcp[2:4])}, tcp, true
}
