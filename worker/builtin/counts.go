package builtin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// wordBlock is the size of the blocks of memory that hold words.
const wordBlock = 64 << 10

var errOverflow = errors.New("count of a word exceeds 64 bits")

// counts holds the numbers of occurrences of words.
type counts struct {
	at    map[string]uint32 // position in n of each word, which is valid UTF-8
	n     []uint64
	block strings.Builder // words, one after the other instead of an allocation each
}

func newCounts() *counts { return &counts{at: map[string]uint32{}} }

// add adds n to a word's count. It replaces invalid UTF-8 bytes with U+FFFD, as
// encoding/json does.
func (c *counts) add(word []byte, n uint64) error {
	i, ok := c.at[string(word)] // does not allocate
	if !ok {
		if word = replaceInvalid(word); len(c.n) == math.MaxUint32 {
			return errTooManyWords
		}
		if i, ok = c.at[string(word)]; !ok {
			i = uint32(len(c.n)) //nolint:gosec // compared above
			c.n = append(c.n, 0)
			c.at[c.keep(word)] = i
		}
	}
	if c.n[i] > math.MaxUint64-n {
		return errOverflow
	}
	c.n[i] += n
	return nil
}

// errTooManyWords is the error of more than 4 billion different words, which take more
// memory than a worker has.
var errTooManyWords = errors.New("too many different words")

// keep copies a word into a block.
func (c *counts) keep(word []byte) string {
	if len(word) > wordBlock/16 {
		return string(word)
	}
	if c.block.Len()+len(word) > c.block.Cap() {
		c.block = strings.Builder{} // the words keep the previous block
		c.block.Grow(wordBlock)
	}
	start := c.block.Len()
	_, _ = c.block.Write(word)
	return c.block.String()[start:]
}

func replaceInvalid(word []byte) []byte {
	if utf8.Valid(word) {
		return word
	}
	fixed := make([]byte, 0, len(word)+8)
	for len(word) > 0 {
		r, size := utf8.DecodeRune(word) // size 1 for an invalid byte
		fixed = utf8.AppendRune(fixed, r)
		word = word[size:]
	}
	return fixed
}

// write writes one JSON object with sorted keys and a line end.
func (c *counts) write(w io.Writer) error {
	b := bufio.NewWriterSize(w, readSize)
	entry := []byte{'{'}
	for _, e := range c.sorted() {
		entry = append(appendWord(entry, e.word), ':')
		entry = strconv.AppendUint(entry, e.n, 10)
		_, _ = b.Write(entry) // Flush returns the first error
		entry = append(entry[:0], ',')
	}
	if len(c.at) == 0 {
		_ = b.WriteByte('{')
	}
	_, _ = b.WriteString("}\n")
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing word counts: %w", err)
	}
	return nil
}

type wordCount struct {
	word string
	n    uint64
}

func (c *counts) sorted() []wordCount {
	all := make([]wordCount, 0, len(c.at))
	for word, i := range c.at {
		all = append(all, wordCount{word, c.n[i]})
	}
	slices.SortFunc(all, func(a, b wordCount) int { return strings.Compare(a.word, b.word) })
	return all
}

// appendWord appends a word as a JSON string, as encoding/json writes it without
// escaping HTML.
func appendWord(to []byte, word string) []byte {
	start := len(to)
	to = append(to, '"')
	for i := range len(word) {
		switch b := word[i]; {
		case b == '"' || b == '\\':
			to = append(to, '\\', b)
		case b < ' ' || b == 0xE2: // a control character; perhaps U+2028 or U+2029
			return appendEncoded(to[:start], word)
		default:
			to = append(to, b)
		}
	}
	return append(to, '"')
}

func appendEncoded(to []byte, word string) []byte {
	b := bytes.NewBuffer(to)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(word) // a string in memory
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
