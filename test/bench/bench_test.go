package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheMedianStandsForWhatWasMeasured(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(test.values); got != test.want {
			t.Errorf("%v: got %v, want %v", test.values, got, test.want)
		}
	}
}

func TestTheTableHasSpreadAndRatio(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table := &table{out: &out}
	table.add("yardstick", "/s", "", 1000)
	table.compare("measured", "tasks/s", "3 coordinators", "yardstick", 30_000, 20_000, 25_000)
	if err := table.print(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{"measured", "25,000", "20,000", "30,000", "tasks/s", "25", "x", "yardstick", "3", "coordinators"}
	if got := strings.Fields(lines[2]); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	t.Parallel()
	got := parseBenchmarks([]byte(`goos: linux
BenchmarkApply-2   	 1000	  250.5 ns/op	  16 B/op	 1 allocs/op
BenchmarkHeap/wide-2   	 1	  5 ns/op	  181.2 B/task
PASS
`))
	want := []benchmark{{"Apply", "ns/op", 250.5}, {"Heap/wide", "B/task", 181.2}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
