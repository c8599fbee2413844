package process

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// An inbox reads a supervisor's socket: a stream of bytes, and the file
// descriptors that come with some of them. It implements io.ByteReader so that
// a decoder takes no bytes beyond its value.
type inbox struct {
	fd    int
	buf   [16 << 10]byte
	bytes []byte    // received and not read: a part of buf
	files []uintptr // received and not taken
}

// Read returns bytes that have arrived, or waits for some.
func (in *inbox) Read(p []byte) (int, error) {
	if len(in.bytes) == 0 {
		if err := in.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.bytes)
	in.bytes = in.bytes[n:]
	return n, nil
}

// ReadByte is Read for one byte.
func (in *inbox) ReadByte() (byte, error) {
	if len(in.bytes) == 0 {
		if err := in.receive(); err != nil {
			return 0, err
		}
	}
	b := in.bytes[0]
	in.bytes = in.bytes[1:]
	return b, nil
}

// buffered reports whether Read returns immediately.
func (in *inbox) buffered() bool { return len(in.bytes) > 0 }

// receive waits for the next bytes.
func (in *inbox) receive() error {
	control := make([]byte, unix.CmsgSpace(3*4)) // of three descriptors
	for {
		n, controls, _, _, err := unix.Recvmsg(in.fd, in.buf[:], control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		in.bytes = in.buf[:n]
		in.receiveFiles(control[:controls])
		return nil
	}
}

// receiveFiles keeps the descriptors of a control message. A message that is
// cut off, because this process has too many files, has fewer of them.
func (in *inbox) receiveFiles(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return // start notices that they are missing
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // as above
		}
		for _, fd := range fds {
			in.files = append(in.files, uintptr(fd)) //nolint:gosec // a descriptor
		}
	}
}

// takeFiles returns the descriptors that came with an order.
func (in *inbox) takeFiles() []uintptr {
	files := in.files
	in.files = nil
	return files
}

func closeAll(files []uintptr) {
	for _, fd := range files {
		_ = unix.Close(int(fd)) //nolint:gosec // a descriptor; nothing was written
	}
}
