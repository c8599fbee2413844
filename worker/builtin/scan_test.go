package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// all returns the counts as a map.
func (c *counts) all() map[string]uint64 {
	all := map[string]uint64{}
	for word, i := range c.at {
		all[word] = c.n[i]
	}
	return all
}

// differs returns how the results of the scanner and of encoding/json alone differ, or
// "": both have the same counts, or an error.
func differs(t interface{ Context() context.Context }, data []byte, r io.Reader) string {
	got, want := newCounts(), newCounts()
	gotErr := addCounts(t.Context(), got, r)
	wantErr := decodeCounts(t.Context(), want, bytes.NewReader(data))
	switch {
	case (gotErr == nil) != (wantErr == nil):
		return fmt.Sprintf("%q: error %v, want %v", data, gotErr, wantErr)
	case wantErr == nil && !maps.Equal(got.all(), want.all()):
		return fmt.Sprintf("%q: %v, want %v", data, got.all(), want.all())
	}
	return ""
}

func TestTheScannerAcceptsWhatEncodingJSONAccepts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{
			`{`, `}`, `,`, `:`, `"`, `\`, `"a":1,`, `"b":2,"`, `"\"q\\":3,`, `"c":4}`, `"\u00e9":5,`, `"\ud800":1,`, `"é":6,`, "\"\xff\":7,", `"\x":1,`,
			"\"\n\":1,", `"d":01,`, `"e":-1,`, `"f":1.0,`, `"g":9999999999999999999,`, `"h":18446744073709551615,`, `"i":18446744073709551616,`, `"j" : 1 ,`, " ", "\n", "x",
		})
		text := []byte(rapid.SampledFrom([]string{"{", "", " {"}).Draw(t, "start") + strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "text"), ""))
		if rapid.Bool().Draw(t, "ended") {
			text = append(text, "\"z\":1}\n"...)
		}
		for _, r := range []io.Reader{bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text)), iotest.DataErrReader(bytes.NewReader(text))} {
			if problem := differs(t, text, r); problem != "" {
				t.Fatal(problem)
			}
		}
	})
}

func TestTheScannerLeavesOnlyTheEndToEncodingJSON(t *testing.T) {
	t.Parallel()
	s := scanner{counts: newCounts()}
	rest, err := s.scan([]byte(`{"a":1,"\"b\\":2,"\u2028":3,"d":4}` + "\n"))
	if err != nil || string(rest) != `"d":4}`+"\n" || !maps.Equal(s.all(), map[string]uint64{"a": 1, `"b\`: 2, "\u2028": 3}) {
		t.Errorf("%v, rest %q, %v", s.all(), rest, err)
	}
}

func TestEntriesAtTheBordersOfTheBufferAreComplete(t *testing.T) {
	t.Parallel()
	c := newCounts()
	for i := range readSize / 8 { // several buffers
		if err := c.add(fmt.Appendf(nil, `"%d\`, i), uint64(i)); err != nil { //nolint:gosec // not negative
			t.Fatal(err)
		}
	}
	if err := c.add(bytes.Repeat([]byte("long"), readSize), 5); err != nil { // longer than a buffer
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.write(&out); err != nil {
		t.Fatal(err)
	}
	if problem := differs(t, out.Bytes(), bytes.NewReader(out.Bytes())); problem != "" {
		t.Errorf("%.200s", problem)
	}
}

func TestWordsAreWrittenAsEncodingJSONWritesThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := string(replaceInvalid([]byte(rapid.String().Draw(t, "word"))))
		var want bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(word); err != nil {
			t.Fatal(err)
		}
		if got := appendWord([]byte("x"), word); string(got)+"\n" != "x"+want.String() {
			t.Fatalf("%s, want %s", got, want.Bytes())
		}
	})
}

func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":1,"b":2}` + "\n", `{"\ud800":1,"\"":2,"\\u":3}`, `{"a":1,}`, "{", `{"a":1} `, `[1]`, `{"a":1,"b":007,"c":1}`, "{\"\xff\":1,\"b\":1}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range []io.Reader{bytes.NewReader(data), iotest.HalfReader(bytes.NewReader(data))} {
			if problem := differs(t, data, r); problem != "" {
				t.Fatal(problem)
			}
		}
	})
}

func BenchmarkAddCounts(b *testing.B) {
	c := newCounts()
	for i := range 100_000 {
		if err := c.add(fmt.Appendf(nil, `word-"%d"`, i), 1); err != nil {
			b.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := c.write(&out); err != nil {
		b.Fatal(err)
	}
	text := slices.Clone(out.Bytes())
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if err := addCounts(b.Context(), newCounts(), bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
