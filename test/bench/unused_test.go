package main

import (
	"errors"
	"flag"
	"io"
	"testing"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The ratio of tasks per second was 0.85 with 3 rounds and 1.02 with 9, on the same machine.
func TestTheSectionUnusedHasMoreRoundsUnlessTheyAreSet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args           []string
		rounds, unused int
	}{
		{nil, 5, minUnusedRounds},
		{[]string{"-only", "unused"}, 5, minUnusedRounds},
		{[]string{"-quick"}, 2, 2},
		{[]string{"-rounds", "3"}, 3, 3},
		{[]string{"-rounds", "12"}, 12, 12},
		{[]string{"-quick", "-rounds", "4"}, 4, 4},
	} {
		o, err := parseFlags(flag.NewFlagSet("bench", flag.ContinueOnError), test.args)
		if err != nil {
			t.Fatal(err)
		}
		if o.rounds != test.rounds || o.unusedRounds != test.unused {
			t.Errorf("%q: got %d rounds and %d of unused, want %d and %d", test.args, o.rounds, o.unusedRounds, test.rounds, test.unused)
		}
	}
	const samples = 4
	if minUnusedRounds/2 < samples {
		t.Errorf("memory has %d samples, want at least %d", minUnusedRounds/2, samples)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	if _, err := parseFlags(flags, []string{"-rounds", "many"}); err == nil || errors.Is(err, flag.ErrHelp) {
		t.Errorf("an invalid flag: got %v", err)
	}
}

func TestTheTimeAndTheAllocationsOfATaskAreRead(t *testing.T) {
	t.Parallel()
	ns, allocs, err := plainFigures([]byte("goos: linux\nBenchmarkNext/plain-2 \t 2104 \t 283.4 ns/op \t 16 B/op \t 1 allocs/op\nPASS\n"))
	if err != nil || ns != 283.4 || allocs != 1 {
		t.Errorf("got %v ns, %v allocations, %v; want 283.4 and 1", ns, allocs, err)
	}
	for _, out := range []string{
		"PASS\n", // no benchmark of that name
		"BenchmarkNext/plain-2 \t 2104 \t 283.4 ns/op\n", // without allocations
		"BenchmarkNext/plain-2 \t 1 \t 2 ns/op \t 0 B/op \t 0 allocs/op\nBenchmarkNext/plain-2 \t 1 \t 2 ns/op \t 0 B/op \t 0 allocs/op\n",
	} {
		if _, _, err := plainFigures([]byte(out)); err == nil {
			t.Errorf("%q: got no error", out)
		}
	}
}

func TestTheLogOfARoundIsWhatAllReplicasProposed(t *testing.T) {
	t.Parallel()
	stats := func(addr string, bytes, changes uint64) client.ReplicaStats {
		return client.ReplicaStats{Address: addr, Stats: &dtaskv1.StatsResponse{Bytes: bytes, LeaderChanges: changes}}
	}
	before := []client.ReplicaStats{stats("a", 100, 1), stats("b", 70, 1)}
	got, err := proposedBytes(before, []client.ReplicaStats{stats("a", 350, 1), stats("b", 70, 1)})
	if err != nil || got != 250 {
		t.Errorf("got %v, %v; want 250", got, err)
	}
	for name, after := range map[string][]client.ReplicaStats{
		"another leader":    {stats("a", 350, 2), stats("b", 80, 2)},
		"a replica missing": {stats("b", 80, 1)},
		"another replica":   {stats("a", 350, 1), stats("c", 70, 1)},
	} {
		if _, err := proposedBytes(before, after); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}
