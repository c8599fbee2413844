package backup

import (
	"crypto/sha256"
	"hash"
	"io"
)

const (
	// aheadBlock is how many bytes are read at a time.
	aheadBlock = 256 << 10
	// aheadQueue is how many blocks are read before they are needed.
	aheadQueue = 4
	// endFrame is the length of the last frame, which the checksum in it does not cover.
	endFrame = frameHead + endLen + frameTail
)

// ahead reads a file and computes its checksums on a goroutine of its own, while what it has
// read is being used: SHA-256 takes as long as all else. The goroutine ends at the end of the
// file, after an error, or with stop.
type ahead struct {
	from io.Reader
	sum  hash.Hash // of what was read before, and of all blocks without the last endFrame bytes
	tail []byte    // these bytes

	blocks chan []byte   // to the reader; size aheadQueue; closed at the end
	free   chan []byte   // blocks that were used; size aheadQueue+2: all of them
	quit   chan struct{} // closed by stop
	err    error         // of reading, except io.EOF; valid once blocks is closed

	block []byte // that is being used
	rest  []byte // of it
}

// readAhead begins to read. sum has what was read before. The caller calls stop.
func readAhead(from io.Reader, sum hash.Hash) *ahead {
	a := &ahead{
		from: from, sum: sum, blocks: make(chan []byte, aheadQueue), free: make(chan []byte, aheadQueue+2), quit: make(chan struct{}),
	}
	go a.run()
	return a
}

func (a *ahead) run() {
	defer close(a.blocks)
	for {
		b := a.empty()
		n, err := io.ReadFull(a.from, b)
		a.hash(b[:n])
		if n > 0 {
			select {
			case a.blocks <- b[:n]:
			case <-a.quit:
				return
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return
		default:
			a.err = err
			return
		}
	}
}

// empty returns a block to read into.
func (a *ahead) empty() []byte {
	select {
	case b := <-a.free:
		return b[:aheadBlock]
	default:
		return make([]byte, aheadBlock)
	}
}

// hash adds bytes to the checksum, except for the last ones that may be the end frame.
func (a *ahead) hash(b []byte) {
	if keep := max(0, endFrame-len(b)); len(a.tail) > keep {
		a.sum.Write(a.tail[:len(a.tail)-keep])
		a.tail = append(a.tail[:0], a.tail[len(a.tail)-keep:]...)
	}
	covered := max(0, len(b)-endFrame)
	a.sum.Write(b[:covered])
	a.tail = append(a.tail, b[covered:]...)
}

// Read implements io.Reader.
func (a *ahead) Read(b []byte) (int, error) {
	if len(a.rest) == 0 {
		if a.block != nil {
			a.free <- a.block // it has space for all blocks
			a.block = nil
		}
		next, more := <-a.blocks
		if !more {
			return 0, orEOF(a.err)
		}
		a.block, a.rest = next, next
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// stop ends the goroutine, after the read that it is in.
func (a *ahead) stop() {
	close(a.quit)
	for range a.blocks { // until it is closed
	}
}

// sums returns the checksum of all bytes before the end frame, and of all bytes. The end of
// the file was read.
func (a *ahead) sums() (before, whole [sha256.Size]byte) {
	a.sum.Sum(before[:0])
	a.sum.Write(a.tail)
	a.sum.Sum(whole[:0])
	return before, whole
}
