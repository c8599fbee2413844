package fsm

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
)

// recoverable is a machine with a job of three tasks, of which the second is at most
// once and blocked by the first.
func recoverable(t *testing.T) *Machine {
	t.Helper()
	m := NewMachine()
	sum := goldenChunk().Sum(0)
	for i, op := range []Op{
		&SetClusterID{ID: "00112233445566778899aabbccddeeff"},
		&Replica{ServerID: "n1", Instance: "a"}, &Replica{ServerID: "n2", Instance: "b"},
		&BeginUpload{ID: 1, Key: "key", KeyExpires: 1 << 50, Header: goldenHeader, Total: 3},
		&AddChunk{Job: 1, Chunk: goldenChunk()}, &SealUpload{Job: 1, Sum: sum, Digest: [16]byte{7}},
	} {
		if a, ok := m.Apply(uint64(i)+1, Encode(nil, Entry{Ops: []Op{op}})).(Applied); !ok || a.Rejected != Accepted {
			t.Fatalf("%T: %+v", op, a)
		}
	}
	return m
}

func TestARecoveredStateIsThatOfANewClusterWithTheSameJobs(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		m := recoverable(t)
		at := m.Index()
		index, lost := m.Recover(Recovery{ClusterID: "c2", Server: "n1", Instance: "new", KeepAtMostOnce: keep})
		if index != at+1<<20 || m.Index() != index {
			t.Errorf("index %d after %d", index, at)
		}
		var written bytes.Buffer
		if err := m.Snapshot().Persist(&written); err != nil {
			t.Fatal(err)
		}
		again := NewMachine()
		if err := again.Restore(&written); err != nil {
			t.Fatal(err)
		}
		again.Read(func(s *State, _ uint64) {
			instance, _ := s.Instance("n1")
			_, other := s.Instance("n2")
			if s.ClusterID() != "c2" || s.Epoch() != 2 || instance != "new" || other || s.NextJob() != 2+1<<20 {
				t.Errorf("cluster %s, epoch %d, n1 %s, n2 known: %t, next job %d", s.ClusterID(), s.Epoch(), instance, other, s.NextJob())
			}
			job, ok := s.Job(1)
			task, _ := s.Task(TaskRef{1, 1})
			want, state := 1, Lost
			if keep {
				want, state = 0, Blocked
			}
			if !ok || len(lost) != want || task.State != state || job.State.Terminal() == keep || job.Digest != [16]byte{7} {
				t.Errorf("keep %t: lost %v, task %s, job %s", keep, lost, task.State, job.State)
			}
		})
	}
}

func TestASubmittedJobIsReadAsItWasSubmitted(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*jobPlan{
		"listed": {tasks: []taskPlan{{name: "a"}, {name: "b", policy: 1, deps: []uint32{0}}}},
	} {
		s := New()
		for _, op := range p.submit(1, "key", 1) {
			if r := s.Apply(Entry{Ops: []Op{op}}, nil); r != Accepted {
				t.Fatalf("%s: %T: %s", name, op, r)
			}
		}
		got, err := s.Submitted(1)
		if err != nil {
			t.Fatal(err)
		}
		header, _ := proto.MarshalOptions{Deterministic: true}.Marshal(got.GetHeader())
		if !bytes.Equal(header, p.header()) || len(got.GetTasks()) != len(p.tasks) {
			t.Errorf("%s: got %v", name, got)
		}
		for i, task := range got.GetTasks() {
			if want := p.tasks[i]; task.GetId() != want.name || task.GetPolicy() != want.policy || len(task.GetDependencies()) != len(want.deps) {
				t.Errorf("%s: got %v, want %+v", name, task, want)
			}
		}
	}
	if _, err := New().Submitted(1); err == nil {
		t.Error("an unknown job was found")
	}
}
