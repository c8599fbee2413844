package api

import (
	"testing"
	"testing/synctest"
	"time"
)

// A client that ends the stream as one of its jobs stalls learns what became of the job.
func TestAJobThatStallsAsTheStreamEndsHasAResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := setup(t, func(c *Config) { c.UploadPause = time.Second })
		s, err := r.jobs.Submit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := request("k", header("x"), task("a"))
		p.More, p.Total = true, 2
		if err := s.Send(numbered(1, p)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		m, err := s.Recv()
		if err != nil || len(m.GetResults()) != 1 {
			t.Errorf("got %v, %v, want a result", m, err)
		}
	})
}
