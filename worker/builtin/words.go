package builtin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

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

var errOverflow = errors.New("count of a word exceeds 64 bits")

// counts maps words to their numbers of occurrences. Keys are valid UTF-8.
type counts map[string]*uint64

// add adds n to a word's count. It replaces invalid UTF-8 bytes with U+FFFD, as
// encoding/json does.
func (c counts) add(word []byte, n uint64) error {
	count := c[string(word)] // does not allocate
	if count == nil {
		key := replaceInvalid(word)
		if count = c[key]; count == nil {
			count = new(uint64)
			c[key] = count
		}
	}
	if *count > math.MaxUint64-n {
		return errOverflow
	}
	*count += n
	return nil
}

func replaceInvalid(word []byte) string {
	if utf8.Valid(word) {
		return string(word)
	}
	fixed := make([]byte, 0, len(word)+8)
	for len(word) > 0 {
		r, size := utf8.DecodeRune(word) // size 1 for an invalid byte
		fixed = utf8.AppendRune(fixed, r)
		word = word[size:]
	}
	return string(fixed)
}

// mapWords counts the words of its inputs, or of its payload if it has none.
func mapWords(ctx context.Context, t *worker.Task) ([]byte, error) {
	c := counts{}
	if len(t.Inputs) == 0 {
		if len(t.Payload) == 0 {
			return nil, worker.Fatal(errors.New("map requires at least one input"))
		}
		if err := countWords(ctx, c, bytes.NewReader(t.Payload)); err != nil {
			return nil, err
		}
	}
	for i, path := range t.Inputs {
		if err := countFile(ctx, c, path); err != nil {
			return nil, err
		}
		t.Progress(float64(i+1)/float64(len(t.Inputs)), "")
	}
	return deliver(t, c)
}

func countFile(ctx context.Context, c counts, path string) error {
	file, err := openFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // read only
	if err := countWords(ctx, c, file); err != nil {
		return fmt.Errorf("counting words of %s: %w", path, err)
	}
	return nil
}

// countWords counts the words of r with the memory of one word and a buffer.
func countWords(ctx context.Context, c counts, r io.Reader) error {
	buf := make([]byte, readSize)
	kept := 0 // bytes of an incomplete word at the start of buf
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.Read(buf[kept:])
		rest, addErr := c.addWords(buf[:kept+n], kept)
		if addErr != nil {
			return addErr
		}
		switch {
		case errors.Is(err, io.EOF):
			if len(rest) > 0 {
				return c.add(rest, 1)
			}
			return nil
		case err != nil:
			return err //nolint:wrapcheck // wrapped by the caller
		}
		if kept = copy(buf, rest); kept == len(buf) {
			if kept >= maxWord {
				return worker.Fatal(fmt.Errorf("word exceeds %d bytes", maxWord))
			}
			buf = slices.Concat(buf, make([]byte, len(buf)))
		}
	}
}

// addWords counts the words that end in data, and returns the incomplete one at
// its end. The first known bytes contain no white space.
func (c counts) addWords(data []byte, known int) (rest []byte, err error) {
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
	c := counts{}
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

// addCounts adds the counts of one JSON object, which it reads entry by entry.
func addCounts(ctx context.Context, c counts, r io.Reader) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(r, readSize))
	decoder.UseNumber()
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return countsError(err, "must start with {")
	}
	for entry := 0; decoder.More(); entry++ {
		if entry%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		word, err := decoder.Token()
		if err != nil {
			return countsError(err, "")
		}
		number, err := decoder.Token()
		if err != nil {
			return countsError(err, "")
		}
		key, _ := word.(string)
		n, err := strconv.ParseUint(fmt.Sprint(number), 10, 64)
		if _, ok := number.(json.Number); !ok || err != nil {
			return countsError(nil, fmt.Sprintf("count of %.40q must be a number from 0 to %d", key, uint64(math.MaxUint64)))
		}
		if err := c.add([]byte(key), n); err != nil {
			return worker.Fatal(err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return countsError(err, "")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return countsError(nil, "unexpected data after the object")
	}
	return nil
}

// countsError returns the error of an invalid input. An error of reading, unlike
// one of the contents, may be temporary.
func countsError(err error, what string) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = errors.New(what)
	}
	return worker.Fatal(fmt.Errorf("invalid word counts: %w", err))
}

// deliver writes the counts to the output, or returns them if the task has none.
func deliver(t *worker.Task, c counts) ([]byte, error) {
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
	return fmt.Appendf(nil, `{"words":%d}`, len(c)), nil
}

// write writes one JSON object with sorted keys and a line end.
func (c counts) write(w io.Writer) error {
	b := bufio.NewWriterSize(w, readSize)
	var key bytes.Buffer
	encoder := json.NewEncoder(&key)
	encoder.SetEscapeHTML(false)
	separator := byte('{')
	for _, word := range slices.Sorted(maps.Keys(c)) {
		key.Reset()
		if err := encoder.Encode(word); err != nil {
			return fmt.Errorf("encoding a word: %w", err)
		}
		_ = b.WriteByte(separator) // Flush returns the first error
		_, _ = b.Write(bytes.TrimSuffix(key.Bytes(), []byte("\n")))
		_ = b.WriteByte(':')
		_, _ = b.Write(strconv.AppendUint(key.AvailableBuffer(), *c[word], 10))
		separator = ','
	}
	if separator == '{' {
		_ = b.WriteByte('{')
	}
	_, _ = b.WriteString("}\n")
	return b.Flush() //nolint:wrapcheck // wrapped by the caller
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
