package fsm

import (
	"bytes"
	"slices"
	"testing"
)

func TestJobsThatFollowOneAnotherShareTheirHeader(t *testing.T) {
	t.Parallel()
	one, other := plan(nil), plan(nil)
	other.onFailure = continueOnFailure
	s := New()
	for i, p := range []*jobPlan{one, one, other, one} {
		ops := p.submit(JobID(i+1), string(rune('a'+i)), 1)
		ops[0].(*BeginUpload).Header = slices.Clone(p.header()) // as decoded from the log
		if r := s.Apply(Entry{Ops: ops}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	var written bytes.Buffer
	if err := s.WriteSnapshot(&written); err != nil {
		t.Fatal(err)
	}
	restored, err := ReadSnapshot(&written)
	if err != nil {
		t.Fatal(err)
	}
	for name, st := range map[string]*State{"applied": s, "restored": restored} {
		var jobs []Job
		for id := JobID(1); id <= 4; id++ {
			job, _ := st.Job(id)
			jobs = append(jobs, job)
		}
		if jobs[0].Header != jobs[1].Header || jobs[1].Header == jobs[2].Header || jobs[2].Header == jobs[3].Header {
			t.Errorf("%s: want equal headers shared and different ones not", name)
		}
		for i, job := range jobs {
			want := stopOnFailure
			if i == 2 {
				want = continueOnFailure
			}
			if job.Header.GetOnFailure() != want {
				t.Errorf("%s: job %d: got the header of another job: %v", name, i+1, job.Header)
			}
		}
	}
}
