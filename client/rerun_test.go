package client

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The coordinator gives the header of a rerun the run of another job, and must not share it.
func TestTheHeaderOfARerunIsSentWithItAndNotShared(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	h := &dtaskv1.JobHeader{Name: "x"}
	seen := make(map[string]bool) // key → sent with a header
	f := &fake{message: func(m *dtaskv1.SubmitRequest) (results []*dtaskv1.SubmitResult, _ error) {
		for _, p := range m.GetParts() {
			seen[p.GetIdempotencyKey()] = p.GetHeader() != nil
			if want := map[string]string{"rerun": "41"}[p.GetIdempotencyKey()]; p.GetRerunOf() != want {
				t.Errorf("%s: got rerun_of %q, want %q", p.GetIdempotencyKey(), p.GetRerunOf(), want)
			}
			results = append(results, &dtaskv1.SubmitResult{Job: p.GetJob(), Stored: &dtaskv1.StoredJob{Id: "1"}})
		}
		return results, nil
	}}
	n.serve(t, "a:1", f)
	job := func(key, rerunOf string) Submission {
		return Submission{Job: &dtaskv1.JobSpec{Header: h, Tasks: []*dtaskv1.TaskSpec{{Id: "a"}}}, SubmitOptions: SubmitOptions{Key: key, RerunOf: rerunOf}}
	}
	for _, got := range c.SubmitMany(t.Context(), []Submission{job("first", ""), job("rerun", "41"), job("next", "")}) {
		if got.Err != nil {
			t.Error(got.Err)
		}
	}
	for _, key := range []string{"first", "rerun", "next"} {
		if !seen[key] {
			t.Errorf("%s was sent without its header", key)
		}
	}
}
