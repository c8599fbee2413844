package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"

	"github.com/dtask/dtask/worker"
)

// addCounts adds the counts of one JSON object, with the memory of a buffer. It scans
// the entries that counts.write writes, and leaves the rest to encoding/json, which
// takes six times as long with words in quotation marks: the last entry and the end, and
// all that follows an entry of another form or one that exceeds the buffer.
func addCounts(ctx context.Context, c *counts, r io.Reader) error {
	s := scanner{counts: c}
	buf := make([]byte, readSize)
	kept := 0 // bytes at the start of buf that were read and not scanned
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, readErr := r.Read(buf[kept:])
		rest, err := s.scan(buf[:kept+n])
		if err != nil {
			return worker.Fatal(err)
		}
		kept = copy(buf, rest)
		switch {
		case errors.Is(readErr, io.EOF) || kept == len(buf):
			return decodeCounts(ctx, c, io.MultiReader(s.opened(), bytes.NewReader(buf[:kept]), r))
		case readErr != nil:
			return countsError(readErr, "")
		}
	}
}

// A scanner adds entries of the form that counts.write writes.
type scanner struct {
	*counts

	inside bool   // an entry was added
	word   []byte // the last word with escapes
}

// opened reads what makes the remaining text an object of its own.
func (s *scanner) opened() io.Reader {
	if !s.inside {
		return bytes.NewReader(nil)
	}
	return bytes.NewReader([]byte{'{'})
}

// scan adds the entries at the start of data that another one follows, and returns what
// follows them: if any was added, it starts with the quotation mark of an entry, so
// that it is valid after { if and only if all of the text is valid.
func (s *scanner) scan(data []byte) (rest []byte, err error) {
	at := 0
	if !s.inside {
		if len(data) == 0 || data[0] != '{' {
			return data, nil
		}
		at = 1
	}
	for {
		word, number, ok := s.scanWord(data, at)
		if !ok {
			break
		}
		n, next, ok := scanNumber(data, number)
		if !ok || next+1 >= len(data) || data[next] != ',' || data[next+1] != '"' {
			break
		}
		if err := s.add(word, n); err != nil {
			return nil, err
		}
		at, s.inside = next+1, true
	}
	if !s.inside {
		return data, nil
	}
	return data[at:], nil
}

// scanWord reads a word and the colon after it. It returns the offset after them.
func (s *scanner) scanWord(data []byte, at int) (word []byte, next int, ok bool) {
	if at >= len(data) || data[at] != '"' {
		return nil, 0, false
	}
	start, escaped, simple := at+1, false, true
	i := start
	for i < len(data) && data[i] != '"' {
		if data[i] < ' ' {
			return nil, 0, false
		}
		if data[i] == '\\' {
			if i++; i == len(data) {
				return nil, 0, false
			}
			escaped, simple = true, simple && (data[i] == '"' || data[i] == '\\')
		}
		i++
	}
	if i+1 >= len(data) || data[i+1] != ':' {
		return nil, 0, false
	}
	switch word = data[start:i]; {
	case !escaped:
		return word, i + 2, true
	case simple:
		s.word = unescape(s.word[:0], word)
		return s.word, i + 2, true
	}
	var decoded string
	if json.Unmarshal(data[at:i+1], &decoded) != nil {
		return nil, 0, false // the fallback reports it
	}
	return []byte(decoded), i + 2, true
}

// unescape appends a word in which backslashes escape only quotation marks and
// backslashes.
func unescape(to, word []byte) []byte {
	for {
		i := bytes.IndexByte(word, '\\')
		if i < 0 {
			return append(to, word...)
		}
		to = append(append(to, word[:i]...), word[i+1])
		word = word[i+2:]
	}
}

// scanNumber reads a number from 0 to 10^19 - 1, which fits into 64 bits.
func scanNumber(data []byte, at int) (n uint64, next int, ok bool) {
	const maxDigits = 19
	next = at
	for next < len(data) && '0' <= data[next] && data[next] <= '9' {
		n = n*10 + uint64(data[next]-'0') // if it overflows, there are too many digits
		next++
	}
	digits := next - at
	return n, next, 0 < digits && digits <= maxDigits && (digits == 1 || data[at] != '0')
}

// decodeCounts adds the counts of any JSON object, which it reads entry by entry.
func decodeCounts(ctx context.Context, c *counts, r io.Reader) error {
	decoder := json.NewDecoder(r)
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
		value, err := decoder.Token()
		if err != nil {
			return countsError(err, "")
		}
		key, _ := word.(string)
		number, ok := value.(json.Number)
		n, err := strconv.ParseUint(string(number), 10, 64)
		if !ok || err != nil {
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
