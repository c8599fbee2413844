package history

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestARecordedHistoryCanBeLoaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for client := range 4 {
		group.Go(func() {
			for range 50 {
				c := r.Begin(Call{Client: client, Kind: Submit, Key: "k"})
				c.Verdict, c.Job = OK, "17"
				r.End(c)
			}
		})
	}
	group.Wait()
	c := r.Begin(Call{Kind: Cancel, Job: "17"})
	c.Verdict = Unknown
	r.End(c)
	r.Begin(Call{Kind: Read, Job: "17"}) // never returns
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	calls, err := Load(path)
	if err != nil || len(calls) != 202 {
		t.Fatalf("got %d calls, %v; want 202", len(calls), err)
	}
	for i, c := range calls[:200] {
		if c.N != i+1 || c.Verdict != OK || c.Job != "17" || c.Return < c.Call {
			t.Fatalf("call %d: got %+v", i, c)
		}
	}
	for _, c := range calls[200:] {
		if c.Verdict != Unknown || c.Return != Never {
			t.Errorf("got a known outcome of %+v", c)
		}
	}
}

func TestATornLastLineIsIgnored(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(`{"n":1,"kind":"read","call":5}`+"\n"+`{"n":1,"kind":"re`), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := Load(path)
	if err != nil || len(calls) != 1 || calls[0].Verdict != Unknown {
		t.Fatalf("%+v, %v", calls, err)
	}
}
