package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// countAlone counts the words of the files without dtask: a loop and a map. A
// word is a run of bytes between ASCII white space, case kept, each byte that is
// no valid UTF-8 replaced.
func countAlone(files []file) (map[string]uint64, error) {
	counts := make(map[string]uint64)
	for _, f := range files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("counting by hand: %w", err)
		}
		addWords(counts, string(text))
	}
	return counts, nil
}

func addWords(counts map[string]uint64, text string) {
	for _, word := range strings.FieldsFunc(text, asciiSpace) {
		counts[string([]rune(word))]++ // which replaces what is no UTF-8
	}
}

func asciiSpace(r rune) bool {
	return r == ' ' || '\t' <= r && r <= '\r' // tab, line feed, vertical tab, form feed, carriage return
}

// readCounts reads what the last reduce task wrote.
func readCounts(path string) (map[string]uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the job's output: %w", err)
	}
	var counts map[string]uint64
	if err := json.Unmarshal(text, &counts); err != nil {
		return nil, fmt.Errorf("reading the job's output: %w", err)
	}
	return counts, nil
}

// differences are the words whose counts differ, at most a few, and how many
// there are.
func differences(got, want map[string]uint64) (some []string, all int) {
	note := func(word string, g, w uint64) {
		if all++; len(some) < 5 {
			some = append(some, fmt.Sprintf("%.40q: %d instead of %d", word, g, w))
		}
	}
	for word, w := range want {
		if g := got[word]; g != w {
			note(word, g, w)
		}
	}
	for word, g := range got {
		if _, ok := want[word]; !ok {
			note(word, g, 0)
		}
	}
	return some, all
}

// total adds up all counts.
func total(counts map[string]uint64) uint64 {
	var sum uint64
	for _, n := range counts {
		sum += n
	}
	return sum
}
