package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
)

// bbolt reads all pages when it opens a file for writing, in a goroutine of its own,
// and panics there over an invalid page: nothing can recover that, and the process
// would exit with a stack trace rather than with what is damaged. So the pages are
// verified here first. They have no checksums, except the two root pages; values are
// verified when they are read.
//
// The format is that of bbolt's files of version 2, in the machine's byte order:
//
//	page    id 8, flags 2, count 2, overflow 4, then elements, then keys and values
//	root    in pages 0 and 1: magic 4, version 4, page size 4, flags 4, root bucket 16, free list 8, pages 8, transaction 8, sum 8
//	branch  element: position 4, key size 4, page 8
//	leaf    element: flags 4, position 4, key size 4, value size 4
//	bucket  a value with flag 1: page 8, sequence 8, and if the page is 0 an inline page

const (
	pageHeader  = 16
	rootSize    = 64
	elementSize = 16
	bucketSize  = 16

	rootMagic   = 0xED0CDAED
	rootVersion = 2

	branchFlag = 1
	leafFlag   = 2
	bucketFlag = 1
)

// pages verifies the pages of a closed raft.db.
type pages struct {
	file  *os.File
	size  int64 // of the file
	page  int64 // size of one
	count uint64
	seen  map[uint64]bool

	transaction uint64 // number of the last one
	roots       int    // readable ones of the two
}

// verifyPages returns a DamageError if a page of a closed raft.db is invalid, or if its
// last transaction is missing. A file without a valid root is left to bbolt.
func verifyPages(path string) (tail, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names the folder
	if err != nil {
		return tail{}, fmt.Errorf("inspecting the log store: %w", err)
	}
	defer func() { _ = file.Close() }() // read only
	info, err := file.Stat()
	if err != nil {
		return tail{}, fmt.Errorf("inspecting the log store: %w", err)
	}
	p := &pages{file: file, size: info.Size(), seen: make(map[uint64]bool)}
	root, ok := p.newestRoot()
	if !ok {
		return tail{}, nil
	}
	if p.size/p.page < int64(p.count) { //nolint:gosec // above 2^63 it is negative, which walk detects
		// bbolt lets the file grow, and syncs that, before a root counts the page.
		return tail{}, &DamageError{Path: path, Detail: fmt.Sprintf("it has %d bytes, fewer than %d pages of %d", p.size, p.count, p.page)}
	}
	if err := p.walk(root, true, nil, nil); err != nil {
		return tail{}, &DamageError{Path: path, Detail: err.Error()}
	}
	t := p.tail(path)
	return t, t.check()
}

// tail returns how the last transaction was found. Transactions write the two roots in
// turn, in pages 0 and 1.
func (p *pages) tail(path string) tail {
	t := tail{path: path, unit: "transaction", last: p.transaction}
	t.marked, t.hasMark = readMark(filepath.Dir(path), boltMarkName)
	if p.roots < 2 {
		t.unreadable = "one of its two roots"
	}
	return t
}

// newestRoot returns the page of the root bucket of the last transaction.
func (p *pages) newestRoot() (page uint64, ok bool) {
	for _, at := range []int64{0, int64(os.Getpagesize()), 4096, 16384} {
		root, valid := p.root(at)
		if transaction := binary.NativeEndian.Uint64(root[48:]); valid && (!ok || transaction > p.transaction) {
			p.transaction, ok = transaction, true
			p.page = int64(binary.NativeEndian.Uint32(root[8:]))
			p.count = binary.NativeEndian.Uint64(root[40:])
			page = binary.NativeEndian.Uint64(root[16:])
		}
	}
	p.roots = 0
	for _, at := range []int64{0, p.page} {
		if _, valid := p.root(at); valid && ok {
			p.roots++
		}
	}
	return page, ok
}

// root reads the root at an offset.
func (p *pages) root(at int64) (root []byte, valid bool) {
	b := make([]byte, pageHeader+rootSize)
	if _, err := p.file.ReadAt(b, at); err != nil {
		return b[pageHeader:], false
	}
	root = b[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(root[:rootSize-8]) // it cannot fail
	return root, binary.NativeEndian.Uint32(root) == rootMagic && binary.NativeEndian.Uint32(root[4:]) == rootVersion &&
		binary.NativeEndian.Uint64(root[56:]) == sum.Sum64()
}

// content is a page with its overflow pages. Only the start of a page with large values
// is in memory: later keys are read one by one, and values never.
type content struct {
	start  []byte
	length int
	at     int64 // in the file
	file   io.ReaderAt
}

// bytes returns bytes at an offset in the content.
func (c content) bytes(from, size uint64) ([]byte, error) {
	if from+size <= uint64(len(c.start)) {
		return c.start[from : from+size], nil
	}
	b := make([]byte, size)
	if _, err := c.file.ReadAt(b, c.at+int64(from)); err != nil { //nolint:gosec // within the page
		return nil, fmt.Errorf("reading %d bytes at %d: %w", size, from, err)
	}
	return b, nil
}

// walk verifies a page and all pages below it. Top is the bucket of buckets. Keys must
// be at least low and below high, unless these are nil.
func (p *pages) walk(id uint64, top bool, low, high []byte) error {
	c, err := p.read(id, top)
	if err != nil {
		return err
	}
	return p.verify(id, c, top, low, high)
}

// read returns a page with its overflow pages.
func (p *pages) read(id uint64, top bool) (c content, err error) {
	if id < 2 || id >= p.count {
		return c, fmt.Errorf("page %d does not exist; there are %d", id, p.count)
	}
	start := make([]byte, p.page)
	at := int64(id) * p.page //nolint:gosec // below the number of pages
	if _, err := p.file.ReadAt(start, at); err != nil {
		return c, fmt.Errorf("page %d is after the end of the file: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(start[12:]))
	length := int64(more+1) * p.page //nolint:gosec // 32 bits and one
	if id+more >= p.count || at+length > p.size {
		return c, fmt.Errorf("page %d has %d overflow pages, which do not exist", id, more)
	}
	for i := id; i <= id+more; i++ {
		if p.seen[i] {
			return c, fmt.Errorf("page %d is used twice", i)
		}
		p.seen[i] = true
	}
	need := length
	if flags, count := binary.NativeEndian.Uint16(start[8:]), int64(binary.NativeEndian.Uint16(start[10:])); flags == leafFlag && !top {
		need = min(length, max(p.page, pageHeader+count*elementSize))
	}
	if need > p.page {
		start = make([]byte, need)
		if _, err := p.file.ReadAt(start, at); err != nil && !errors.Is(err, io.EOF) {
			return c, fmt.Errorf("reading page %d: %w", id, err)
		}
	}
	if got := binary.NativeEndian.Uint64(start); got != id {
		return c, fmt.Errorf("page %d has the id %d", id, got)
	}
	return content{start: start, length: int(length), at: at, file: p.file}, nil
}

// verify verifies the content of a page and the pages below it.
func (p *pages) verify(id uint64, c content, top bool, low, high []byte) error {
	flags, count := binary.NativeEndian.Uint16(c.start[8:]), int(binary.NativeEndian.Uint16(c.start[10:]))
	if flags != branchFlag && flags != leafFlag {
		return fmt.Errorf("page %d is neither branch nor leaf: flags %#x", id, flags)
	}
	if pageHeader+count*elementSize > len(c.start) || flags == branchFlag && count == 0 {
		return fmt.Errorf("page %d has %d elements", id, count)
	}
	var keys [][]byte
	next := pageHeader + count*elementSize // keys and values have no gaps
	for i := range count {
		key, from, to, err := c.key(flags, i)
		if err == nil && from != next {
			err = fmt.Errorf("it is at %d, should be at %d", from, next)
		}
		if err != nil {
			return fmt.Errorf("page %d, element %d: %w", id, i, err)
		}
		next = to
		if i > 0 && bytes.Compare(keys[i-1], key) >= 0 || low != nil && bytes.Compare(key, low) < 0 || high != nil && bytes.Compare(key, high) >= 0 {
			return fmt.Errorf("page %d, element %d: key %x is out of order", id, i, key)
		}
		keys = append(keys, key)
	}
	for i := range count {
		element := c.start[pageHeader+i*elementSize:]
		if flags == branchFlag {
			next := high
			if i+1 < count {
				next = keys[i+1]
			}
			if err := p.walk(binary.NativeEndian.Uint64(element[8:]), top, keys[i], next); err != nil {
				return err
			}
			continue
		}
		if err := p.leaf(id, element, top); err != nil {
			return fmt.Errorf("page %d, element %d: %w", id, i, err)
		}
	}
	return nil
}

// key returns the key of an element, and the offsets of key and value in the page.
func (c content) key(flags uint16, i int) (key []byte, start, end int, err error) {
	at := pageHeader + i*elementSize
	element := c.start[at:]
	position, size, value := uint64(binary.NativeEndian.Uint32(element)), uint64(binary.NativeEndian.Uint32(element[4:])), uint64(0)
	if flags == leafFlag {
		position, size = uint64(binary.NativeEndian.Uint32(element[4:])), uint64(binary.NativeEndian.Uint32(element[8:]))
		value = uint64(binary.NativeEndian.Uint32(element[12:]))
	}
	from := uint64(at) + position           //nolint:gosec // an offset in a page
	if from+size+value > uint64(c.length) { //nolint:gosec // a length
		return nil, 0, 0, fmt.Errorf("%d bytes at %d are not within the page", size+value, from)
	}
	key, err = c.bytes(from, size)
	return key, int(from), int(from + size + value), err //nolint:gosec // within the page
}

// leaf verifies one element of a leaf: a bucket in the bucket of buckets, a value
// elsewhere.
func (p *pages) leaf(id uint64, element []byte, top bool) error {
	flags := binary.NativeEndian.Uint32(element)
	switch {
	case flags == 0 && !top:
		return nil
	case flags != bucketFlag || !top:
		return fmt.Errorf("flags %#x", flags)
	}
	from := binary.NativeEndian.Uint32(element[4:]) + binary.NativeEndian.Uint32(element[8:])
	value := element[from : from+binary.NativeEndian.Uint32(element[12:])]
	if len(value) < bucketSize {
		return fmt.Errorf("a bucket of %d bytes", len(value))
	}
	if page := binary.NativeEndian.Uint64(value); page != 0 {
		return p.walk(page, false, nil, nil)
	}
	if len(value) < bucketSize+pageHeader {
		return fmt.Errorf("an inline bucket of %d bytes", len(value))
	}
	inner := value[bucketSize:]
	if flags := binary.NativeEndian.Uint16(inner[8:]); flags != leafFlag {
		return fmt.Errorf("an inline bucket with flags %#x", flags)
	}
	return p.verify(id, content{start: inner, length: len(inner)}, false, nil, nil)
}
