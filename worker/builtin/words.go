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
	// longestWord bounds the memory that one word takes: a file without white
	// space is one word.
	longestWord = 256 << 20
	// inlineResult is the most that fits into a result.
	inlineResult = 4 << 10
)

var errOverflow = errors.New("a word's count is more than fits into 64 bits")

// counts are words and how often each was seen. Keys are valid UTF-8.
type counts map[string]*uint64

// add adds n to a word's count. A word that is no valid UTF-8 has each invalid
// byte replaced by U+FFFD, as encoding/json does.
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
			return nil, worker.Fatal(errors.New("map needs at least one input"))
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
		return fmt.Errorf("counting the words of %s: %w", path, err)
	}
	return nil
}

// countWords reads to the end, holding no more than one word and a buffer.
func countWords(ctx context.Context, c counts, r io.Reader) error {
	buf := make([]byte, readSize)
	kept := 0 // bytes at the start of buf that begin a word
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
			return err //nolint:wrapcheck // the caller names the file
		}
		if kept = copy(buf, rest); kept == len(buf) {
			if kept >= longestWord {
				return worker.Fatal(fmt.Errorf("a word has more than %d bytes", longestWord))
			}
			buf = slices.Concat(buf, make([]byte, len(buf)))
		}
	}
}

// addWords counts the words of data that end in it and returns the beginning of
// one that may go on. The first known bytes are known to hold no white space.
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

// reduceWords adds up the word counts of its inputs.
func reduceWords(ctx context.Context, t *worker.Task) ([]byte, error) {
	if len(t.Inputs) == 0 {
		return nil, worker.Fatal(errors.New("reduce needs at least one input"))
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
			return nil, fmt.Errorf("adding up %s: %w", path, err)
		}
		t.Progress(float64(i+1)/float64(len(t.Inputs)), "")
	}
	return deliver(t, c)
}

// addCounts reads one JSON object of words and counts, entry by entry.
func addCounts(ctx context.Context, c counts, r io.Reader) error {
	decoder := json.NewDecoder(bufio.NewReaderSize(r, readSize))
	decoder.UseNumber()
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return notCounts(err, "it does not begin with {")
	}
	for entry := 0; decoder.More(); entry++ {
		if entry%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		word, err := decoder.Token()
		if err != nil {
			return notCounts(err, "")
		}
		number, err := decoder.Token()
		if err != nil {
			return notCounts(err, "")
		}
		key, _ := word.(string)
		text, ok := number.(json.Number)
		if !ok {
			return notCounts(nil, fmt.Sprintf("the count of %.40q is no number", key))
		}
		n, err := strconv.ParseUint(text.String(), 10, 64)
		if err != nil {
			return notCounts(nil, fmt.Sprintf("the count of %.40q is %.40q, which is no count", key, text))
		}
		if err := c.add([]byte(key), n); err != nil {
			return worker.Fatal(err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return notCounts(err, "")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return notCounts(nil, "something follows the object")
	}
	return nil
}

// notCounts is the error of an input that is no word count. A fault of reading,
// unlike one of the text, may heal.
func notCounts(err error, what string) error {
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return err
	case err == nil:
		return worker.Fatal(fmt.Errorf("this is no word count: %s", what))
	case errors.Is(err, io.EOF):
		return worker.Fatal(fmt.Errorf("this is no word count: %w", io.ErrUnexpectedEOF))
	default:
		return worker.Fatal(fmt.Errorf("this is no word count: %w", err))
	}
}

// deliver writes the counts to the output, or returns them if there is none.
func deliver(t *worker.Task, c counts) ([]byte, error) {
	if t.Output == "" {
		var b bytes.Buffer
		if err := c.write(&b); err != nil {
			return nil, err
		}
		if b.Len() > inlineResult {
			return nil, worker.Fatal(fmt.Errorf("the counts take %d bytes, more than the %d of a result: give the task an output", b.Len(), inlineResult))
		}
		return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
	}
	file, err := os.OpenFile(t.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // an output is for others to read
	if err != nil {
		return nil, fmt.Errorf("writing the output: %w", err)
	}
	if err := errors.Join(c.write(file), file.Close()); err != nil {
		return nil, fmt.Errorf("writing the output: %w", err)
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
		_ = b.WriteByte(separator) // Flush reports the first error of all
		_, _ = b.Write(bytes.TrimSuffix(key.Bytes(), []byte("\n")))
		_ = b.WriteByte(':')
		_, _ = b.Write(strconv.AppendUint(key.AvailableBuffer(), *c[word], 10))
		separator = ','
	}
	if separator == '{' {
		_ = b.WriteByte('{')
	}
	_, _ = b.WriteString("}\n")
	return b.Flush() //nolint:wrapcheck // the caller names the file
}

// openFile opens an input and refuses what is no file.
func openFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening an input: %w", err)
	}
	if info.IsDir() {
		return nil, worker.Fatal(fmt.Errorf("input %s is a folder; name its files", path))
	}
	if info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return nil, worker.Fatal(fmt.Errorf("input %s is no file", path))
	}
	file, err := os.Open(path) //nolint:gosec // a path of the job file, on purpose
	if err != nil {
		return nil, fmt.Errorf("opening an input: %w", err)
	}
	return file, nil
}
