package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/worker"
)

// table is a Registry.
type table map[string]worker.Handler

func (m table) Handle(name string, h func(context.Context, *worker.Task) ([]byte, error)) {
	m[name] = h
}

func TestEveryTypeIsRegistered(t *testing.T) {
	t.Parallel()
	m := table{}
	Register(m)
	if got, want := slices.Sorted(maps.Keys(m)), spec.BuiltInTypes(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEchoReturnsItsPayloadAndNoopNothing(t *testing.T) {
	t.Parallel()
	if got, err := echo(t.Context(), &worker.Task{Payload: []byte("x\x00y")}); err != nil || string(got) != "x\x00y" {
		t.Errorf("echo = %q, %v", got, err)
	}
	if got, err := noop(t.Context(), &worker.Task{Payload: []byte("x")}); err != nil || got != nil {
		t.Errorf("noop = %q, %v", got, err)
	}
}

func TestSleepWaitsForTheDurationInItsPayload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for payload, want := range map[string]time.Duration{
			"90s": 90 * time.Second, `"1h30m"`: 90 * time.Minute, "2d": 48 * time.Hour, "2d12h": 60 * time.Hour, "0s": 0, "5ms": 5 * time.Millisecond,
		} {
			start := time.Now()
			if _, err := sleep(t.Context(), &worker.Task{Payload: []byte(payload)}); err != nil || time.Since(start) != want {
				t.Errorf("sleep %q took %v, %v; want %v", payload, time.Since(start), err, want)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(worker.ErrCancelled)
		if _, err := sleep(ctx, &worker.Task{Payload: []byte("1h")}); !errors.Is(err, worker.ErrCancelled) {
			t.Errorf("a cancelled sleep = %v", err)
		}
	})
	for _, payload := range []string{"", "5", "-1s", "1x", "2d-1s", "d", "99999999d", "-1d", "1h1d"} {
		if _, err := sleep(t.Context(), &worker.Task{Payload: []byte(payload)}); err == nil {
			t.Errorf("sleep %q is accepted", payload)
		}
	}
}

func TestFailFailsTheRequestedNumberOfTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload  string
		failures uint32
		want     string // error text; empty = success
	}{
		{"", 0, "failed as requested"},
		{"{}", 9, "failed as requested"},
		{`{"message":"no disk","exit":3}`, 0, "no disk"},
		{`{"times":2}`, 0, "failed as requested"},
		{`{"times":2}`, 1, "failed as requested"},
		{`{"times":2}`, 2, ""},
		{`{"time":2}`, 0, "unknown field"},
		{`{} x`, 0, "must be one object"},
		{`{"exit":300}`, 0, "invalid payload"},
	} {
		_, err := fail(t.Context(), &worker.Task{Payload: []byte(c.payload), Failures: c.failures})
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("fail %s after %d failures = %v, want %q", c.payload, c.failures, err, c.want)
		}
	}
}

func TestPrimeMatchesTheReferenceModel(t *testing.T) {
	t.Parallel()
	for n := range uint64(5000) {
		var want uint64
		for d := uint64(2); d < n; d++ {
			if n%d == 0 {
				want = d
				break
			}
		}
		if got, err := smallestFactor(t.Context(), n, nil); err != nil || got != want {
			t.Fatalf("smallestFactor(%d) = %d, %v; want %d", n, got, err, want)
		}
	}
	for payload, want := range map[string]string{
		"0": `{"prime":false,"factor":0}`, "1": `{"prime":false,"factor":0}`, "2": `{"prime":true,"factor":0}`, "4": `{"prime":false,"factor":2}`,
		"999999937": `{"prime":true,"factor":0}`, `"15"`: `{"prime":false,"factor":3}`,
		"9223372036854775807": `{"prime":false,"factor":7}`, "999962000357": `{"prime":false,"factor":999979}`,
	} {
		if got, err := prime(t.Context(), &worker.Task{Payload: []byte(payload)}); err != nil || string(got) != want {
			t.Errorf("prime %q = %s, %v; want %s", payload, got, err, want)
		}
	}
}

func TestALongPrimeTestIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worker.ErrCancelled)
	if _, err := smallestFactor(ctx, 9223372036854775783, func(float64, string) {}); !errors.Is(err, worker.ErrCancelled) {
		t.Errorf("err = %v", err)
	}
}

func FuzzPrimePayload(f *testing.F) {
	for _, seed := range []string{"", "7", "-7", "9223372036854775808", `"11"`, "1e3", "0x10", " 9 "} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		n, err := strconv.ParseUint(text(payload), 10, 64)
		if err == nil && n > 1_000_000_000 && n <= math.MaxInt64 {
			t.Skip("slow")
		}
		got, failure := prime(t.Context(), &worker.Task{Payload: payload})
		if (failure == nil) != (err == nil && n <= math.MaxInt64) {
			t.Fatalf("prime %q = %s, %v", payload, got, failure)
		}
		if failure != nil {
			return
		}
		var result primality
		if err := json.Unmarshal(got, &result); err != nil {
			t.Fatal(err)
		}
		if want := new(big.Int).SetUint64(n).ProbablyPrime(0); result.Prime != want { // exact below 2^64
			t.Fatalf("prime %d = %v, want %v", n, result.Prime, want)
		}
	})
}

// naive is the reference model of the word count.
func naive(text string) map[string]uint64 {
	m := map[string]uint64{}
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) }) {
		key, _ := json.Marshal(w) // replaces invalid bytes
		var valid string
		_ = json.Unmarshal(key, &valid)
		m[valid]++
	}
	return m
}

func decode(t interface{ Fatalf(string, ...any) }, data []byte) map[string]uint64 {
	m := map[string]uint64{}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return m
}

func TestWordCountsMatchTheReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "A", "é", "日本", "\xff", "\xc3", "\xed\xa0\x80", "<b>", `"q"`, "\\", "\u00a0", "\u2028", "\x00", " ", "\n", "\t", "\v", "\f", "\r", "  "})
		text := strings.Join(rapid.SliceOfN(piece, 0, 200).Draw(t, "text"), "")
		c := newCounts()
		reader := iotest.OneByteReader(strings.NewReader(text)) // the buffer ends at every byte
		if _, err := countWords(t.Context(), c, reader, nil); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := c.write(&out); err != nil {
			t.Fatal(err)
		}
		got, want := decode(t, out.Bytes()), naive(text)
		if !maps.Equal(got, want) {
			t.Fatalf("%q: got %v, want %v", text, got, want)
		}
		again := newCounts()
		if err := addCounts(t.Context(), again, bytes.NewReader(out.Bytes())); err != nil {
			t.Fatal(err)
		}
		if len(again.at) != len(want) {
			t.Fatalf("reduce of %s has %d words", out.Bytes(), len(again.at))
		}
	})
}

func TestAWordLongerThanTheBufferIsOneWord(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*readSize+7)
	c := newCounts()
	if _, err := countWords(t.Context(), c, strings.NewReader("a "+long+" a "+long), nil); err != nil {
		t.Fatal(err)
	}
	if len(c.at) != 2 || c.all()["a"] != 2 || c.all()[long] != 2 {
		t.Errorf("%d words", len(c.at))
	}
}

func write(t *testing.T, name, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReduceAddsCounts(t *testing.T) {
	t.Parallel()
	c := newCounts()
	for _, data := range []string{`{"a":1,"b":2}`, " {\n\"a\" : 18446744073709551610 } \n", `{}`, `{"b":0,"b":1}`} {
		if err := addCounts(t.Context(), c, strings.NewReader(data)); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	}
	if c.all()["a"] != 18446744073709551611 || c.all()["b"] != 3 {
		t.Errorf("a = %d, b = %d", c.all()["a"], c.all()["b"])
	}
	if err := addCounts(t.Context(), c, strings.NewReader(`{"a":5}`)); !errors.Is(err, errOverflow) {
		t.Errorf("overflow = %v", err)
	}
	for _, data := range []string{"", "[]", "{", `{"a"}`, `{"a":}`, `{"a":-1}`, `{"a":1.5}`, `{"a":1e3}`, `{"a":"1"}`, `{"a":null}`, `{"a":{}}`, `{"a":1}x`, `{"a":1}{}`, `{"a":99999999999999999999}`, "null"} {
		if err := addCounts(t.Context(), newCounts(), strings.NewReader(data)); err == nil {
			t.Errorf("%q is accepted as word counts", data)
		}
	}
}

func TestMapThenReduceOfFilesIsTheCountOfAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	texts := []string{"to be or not to be", "be\xff quick", "", "a\u00a0b \"x\" <&>\n"}
	var parts []string
	for i, text := range texts {
		in, out := write(t, "in", text), filepath.Join(dir, strconv.Itoa(i))
		if _, err := mapWords(t.Context(), &worker.Task{Inputs: []string{in}, Output: out}); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, out)
	}
	total := filepath.Join(dir, "total")
	if _, err := reduceWords(t.Context(), &worker.Task{Inputs: parts, Output: total}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(total)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decode(t, data), naive(strings.Join(texts, " ")); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzReduceInput(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":1,"b":2}`, `{"\ud800":1}`, "{", `{"a":1} `, `[1]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newCounts()
		if addCounts(t.Context(), c, bytes.NewReader(data)) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is not JSON and was accepted", data)
		}
		var out bytes.Buffer
		if err := c.write(&out); err != nil {
			t.Fatal(err)
		}
		if got := decode(t, out.Bytes()); len(got) != len(c.at) {
			t.Fatalf("%q became %q", data, out.Bytes())
		}
	})
}

func TestMapAndReduceRejectUnreadableInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, run := range map[string]worker.Handler{"map": mapWords, "reduce": reduceWords} {
		for what, task := range map[string]*worker.Task{
			"no inputs": {}, "a directory": {Inputs: []string{dir}}, "no such file": {Inputs: []string{filepath.Join(dir, "none")}},
		} {
			if _, err := run(t.Context(), task); err == nil {
				t.Errorf("%s with %s succeeds", name, what)
			}
		}
	}
	if _, err := reduceWords(t.Context(), &worker.Task{Inputs: []string{write(t, "bad", "x")}}); err == nil || !strings.Contains(err.Error(), "invalid word counts") {
		t.Errorf("reduce of invalid data = %v", err)
	}
}

func TestCountsGoToTheOutputOrTheResult(t *testing.T) {
	t.Parallel()
	got, err := mapWords(t.Context(), &worker.Task{Payload: []byte("b a\nb <")})
	if err != nil || string(got) != `{"<":1,"a":1,"b":2}` {
		t.Errorf("result = %s, %v", got, err)
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(strconv.Itoa(i) + " ")
	}
	if _, err := mapWords(t.Context(), &worker.Task{Payload: []byte(many.String())}); err == nil || !strings.Contains(err.Error(), "declare an output") {
		t.Errorf("a large result = %v", err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := mapWords(t.Context(), &worker.Task{Payload: []byte(many.String()), Output: out}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil || !maps.Equal(decode(t, data), naive(many.String())) {
		t.Errorf("output = %q, %v", data, err)
	}
}

func BenchmarkCountWords(b *testing.B) {
	text := []byte(strings.Repeat("the quick brown fox jumps over the lazy dog\n", 25_000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := countWords(b.Context(), newCounts(), bytes.NewReader(text), nil); err != nil {
			b.Fatal(err)
		}
	}
}
