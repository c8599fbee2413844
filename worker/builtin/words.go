package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/dtask/dtask/worker"
)

const (
	readSize = 256 << 10
	// maxWord bounds the memory of one word: a file without white space is one
	// word.
	maxWord = 256 << 20
	// maxResult bounds a result.
	maxResult = 4 << 10
)

// mapWords counts the words of its inputs, or of its payload if it has none.
func mapWords(ctx context.Context, t *worker.Task) ([]byte, error) {
	c := newCounts()
	if len(t.Inputs) == 0 {
		if len(t.Payload) == 0 {
			return nil, worker.Fatal(errors.New("map requires at least one input"))
		}
		if _, err := countWords(ctx, c, bytes.NewReader(t.Payload), nil); err != nil {
			return nil, err
		}
	}
	var buf []byte
	for i, path := range t.Inputs {
		var err error
		if buf, err = countFile(ctx, c, path, buf); err != nil {
			return nil, err
		}
		t.Progress(float64(i+1)/float64(len(t.Inputs)), "")
	}
	return deliver(t, c)
}

// countFile counts the words of a file. It returns the buffer for the next one.
func countFile(ctx context.Context, c *counts, path string, buf []byte) ([]byte, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	if buf, err = countWords(ctx, c, file, buf); err != nil {
		return nil, fmt.Errorf("counting words of %s: %w", path, err)
	}
	return buf, nil
}

// countWords counts the words of r with the memory of one word and a buffer, which it
// returns; nil makes one.
func countWords(ctx context.Context, c *counts, r io.Reader, buf []byte) ([]byte, error) {
	if buf == nil {
		buf = make([]byte, readSize)
	}
	kept := 0 // bytes of an incomplete word at the start of buf
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n, err := r.Read(buf[kept:])
		rest, addErr := c.addWords(buf[:kept+n], kept)
		if addErr != nil {
			return nil, addErr
		}
		switch {
		case errors.Is(err, io.EOF):
			if len(rest) > 0 {
				return buf, c.add(rest, 1)
			}
			return buf, nil
		case err != nil:
			return nil, err //nolint:wrapcheck // wrapped by the caller
		}
		if kept = copy(buf, rest); kept == len(buf) {
			if kept >= maxWord {
				return nil, worker.Fatal(fmt.Errorf("word exceeds %d bytes", maxWord))
			}
			buf = slices.Concat(buf, make([]byte, len(buf)))
		}
	}
}

// addWords counts the words that end in data, and returns the incomplete one at
// its end. The first known bytes contain no white space.
func (c *counts) addWords(data []byte, known int) (rest []byte, err error) {
	start := 0
	for i := known; i < len(data); i++ {
		if !isSpace[data[i]] {
			continue
		}
		if i > start {
			if err := c.add(data[start:i], 1); err != nil {
				return nil, err
			}
		}
		start = i + 1
	}
	return data[start:], nil
}

// isSpace is ASCII white space.
var isSpace = [256]bool{' ': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true}

// reduceWords adds the word counts of its inputs.
func reduceWords(ctx context.Context, t *worker.Task) ([]byte, error) {
	if len(t.Inputs) == 0 {
		return nil, worker.Fatal(errors.New("reduce requires at least one input"))
	}
	c := newCounts()
	for i, path := range t.Inputs {
		file, err := openFile(path)
		if err != nil {
			return nil, err
		}
		err = addCounts(ctx, c, file)
		_ = file.Close() // read only
		if err != nil {
			return nil, fmt.Errorf("adding counts of %s: %w", path, err)
		}
		t.Progress(float64(i+1)/float64(len(t.Inputs)), "")
	}
	return deliver(t, c)
}

// deliver writes the counts to the output, or returns them if the task has none.
func deliver(t *worker.Task, c *counts) ([]byte, error) {
	if t.Output == "" {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			return nil, err
		}
		if b.Len() > maxResult {
			return nil, worker.Fatal(fmt.Errorf("result too large: %d bytes exceed %d: declare an output", b.Len(), maxResult))
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
	}
	file, err := os.OpenFile(t.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // other users may read an output
	if err == nil {
		err = errors.Join(c.write(file), file.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("writing output: %w", err)
	}
	return fmt.Appendf(nil, `{"words":%d}`, len(c.at)), nil
}

// openFile opens an input, and rejects everything that is not a file.
func openFile(path string) (file *os.File, err error) {
	info, err := os.Stat(path)
	if err == nil {
		if info.Mode()&(fs.ModeDir|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			return nil, worker.Fatal(fmt.Errorf("input %s is not a file", path))
		}
		file, err = os.Open(path) //nolint:gosec // a path of the job file, on purpose
	}
	if err != nil {
		return nil, fmt.Errorf("opening input: %w", err)
	}
	return file, nil
}
