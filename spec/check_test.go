package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// sound is a job of two tasks that passes the check.
func sound(t *testing.T) *dtaskv1.JobSpec {
	t.Helper()
	job, err := Parse("f", []byte(`job:
  name: x
  tasks:
    - {id: a, command: [echo, hi], env: {A: b}, resources: {cpu: 1}, require: {zone: eu}}
    - {id: b, type: map, needs: [a], inputs: [/x], output: /y, payload: p, retry: {except: ["exit:2"]}}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestDecodedJobIsCheckedAgainstEveryRule(t *testing.T) {
	t.Parallel()
	type job = dtaskv1.JobSpec
	policy := func(j *job) *dtaskv1.TaskPolicy { return j.GetHeader().GetPolicies()[0] }
	for want, spoil := range map[string]func(j *job){
		"job.name: is empty":                                  func(j *job) { j.Header = nil },
		`job.name: "a b" contains`:                            func(j *job) { j.Header.Name = "a b" },
		"job.owner: has 64 bytes":                             func(j *job) { j.Header.Owner = strings.Repeat("o", 64) },
		"job.priority: PRIORITY_UNSPECIFIED is not known":     func(j *job) { j.Header.Priority = 0 },
		"job.on_failure: 9 is not known":                      func(j *job) { j.Header.OnFailure = 9 },
		"job.policies[0].reuse: must not be set":              func(j *job) { policy(j).ReuseMs, policy(j).Execution = 1, 2 },
		"job.policies[0].preemptible: must not be set":        func(j *job) { policy(j).Preemptible, policy(j).Execution = true, 2 },
		"job.policies[1].preemptible: must not be":            func(j *job) { j.Header.Policies[1].Preemptible, j.Header.Policies[1].Finally = true, true },
		"job.policies[0].reuse.for: is out of range":          func(j *job) { policy(j).ReuseMs = MaxReuse.Milliseconds() + 1 },
		`task "a": reuse.key: has 0 bytes`:                    func(j *job) { policy(j).ReuseMs = 1 },
		`task "a": reuse.key: must not be set`:                func(j *job) { j.Tasks[0].Body.ReuseKey = "k" },
		"job.max_failures: 1000001 is out of range":           func(j *job) { j.Header.MaxFailures = MaxTasks + 1 },
		"job.deadline: -1 ms is out of range":                 func(j *job) { j.Header.DeadlineMs = -1 },
		"job.start_after: 1s is not before the deadline":      func(j *job) { j.Header.StartAfterMs, j.Header.DeadlineMs = 1000, 1000 },
		"job.webhook: contains a user":                        func(j *job) { j.Header.Webhook = "https://u:p@example.org/" },
		`job.env: reserved variable "DTASK_A"`:                func(j *job) { j.Header.Env = map[string]string{"DTASK_A": ""} },
		"job.env.A: contains a NUL byte":                      func(j *job) { j.Header.Env = map[string]string{"A": "\x00"} },
		`job.labels: invalid name "a b"`:                      func(j *job) { j.Header.Labels = map[string]string{"a b": ""} },
		"job.labels.a: has 256 bytes":                         func(j *job) { j.Header.Labels = map[string]string{"a": strings.Repeat("v", 256)} },
		"job.policies: is empty":                              func(j *job) { j.Header.Policies = nil },
		"job: has a header of":                                func(j *job) { j.Header.Env = map[string]string{"A": strings.Repeat("v", MaxHeaderBytes)} },
		"job.policies[0].type: ":                              func(j *job) { policy(j).Type = " " },
		"job.policies[0].priority: 7 is not":                  func(j *job) { policy(j).Priority = 7 },
		"job.policies[0].timeout: 0 ms is":                    func(j *job) { policy(j).TimeoutMs = 0 },
		"job.policies[0].timeout: 315360000001 ms":            func(j *job) { policy(j).TimeoutMs = MaxDuration.Milliseconds() + 1 },
		"job.policies[0].queue_timeout: -1 ms":                func(j *job) { policy(j).QueueTimeoutMs = -1 },
		"job.policies[0].queue_timeout: 0 ms is out of range": func(j *job) { policy(j).QueueTimeoutRequeues = true },
		"job.policies[0].expect: -1 ms":                       func(j *job) { policy(j).ExpectMs = -1 },
		"job.policies[0].start_timeout: -1 ms":                func(j *job) { policy(j).StartTimeoutMs = -1 },
		"job.policies[0].heartbeat_timeout: -1":               func(j *job) { policy(j).HeartbeatTimeoutMs = -1 },
		"job.policies[0].kill_grace: -1 ms":                   func(j *job) { policy(j).KillGraceMs = -1 },
		"job.policies[0].execution: EXECUTION_UNSPECIFIED":    func(j *job) { policy(j).Execution = 0 },
		"job.policies[0].resources.cpu: -1 is":                func(j *job) { policy(j).Resources = map[string]int64{"cpu": -1} },
		`job.policies[0].resources: invalid name "a b"`:       func(j *job) { policy(j).Resources = map[string]int64{"a b": 1} },
		"job.policies[0].require.zone: ":                      func(j *job) { policy(j).Require = map[string]string{"zone": "\n"} },
		"job.policies[0].secrets: lists 17 secrets":           func(j *job) { policy(j).Secrets = strings.Split("a b c d e f g h i j k l m n o p q", " ") },
		`job.policies[0].secrets[1]: "a.b" has the same variable as "A_b": DTASK_SECRET_A_B_FILE`: func(j *job) { policy(j).Secrets = []string{"A_b", "a.b"} },
		`job.policies[0].secrets[0]: "a/b" contains`:                                              func(j *job) { policy(j).Secrets = []string{"a/b"} },
		"job.policies[0].env: the environment has":                                                func(j *job) { policy(j).Env = map[string]string{"A": strings.Repeat("v", MaxEnvBytes)} },
		"job.tasks: has only cleanup tasks":                                                       func(j *job) { policy(j).Finally, j.Header.Policies[1].Finally = true, true },
		`task "b": must precede all cleanup tasks`:                                                func(j *job) { policy(j).Finally, j.Tasks[1].Dependencies = true, nil },
		`task "b": dependencies: must not contain ordinary tasks`:                                 func(j *job) { j.Header.Policies[1].Finally = true },
		"job.policies[0].retry.max: 1000001 is":                                                   func(j *job) { policy(j).Retry.Max = MaxRetries + 1 },
		"job.policies[0].retry.initial: 0 ms":                                                     func(j *job) { policy(j).Retry.InitialMs = 0 },
		"job.policies[0].retry.max_delay: 1 ms is":                                                func(j *job) { policy(j).Retry.MaxDelayMs = 1 },
		"job.policies[0].retry.multiplier: 999 thousandths":                                       func(j *job) { policy(j).Retry.MultiplierPermille = 999 },
		`job.policies[0].retry.on: unknown failure class "x"`:                                     func(j *job) { policy(j).Retry.On = []string{"x"} },
		"job.policies[0].retry.except: lists 65 classes":                                          func(j *job) { policy(j).Retry.Except = make([]string, 65) },
		"job.tasks: is empty":                                                                     func(j *job) { j.Tasks = nil },
		"job.tasks[0].id: is empty":                                                               func(j *job) { j.Tasks[0].Id = "" },
		`job.tasks[1].id: "a/b" contains`:                                                         func(j *job) { j.Tasks[1].Id = "a/b" },
		`task "a": id: duplicate id of tasks 0 and 1`:                                             func(j *job) { j.Tasks[1].Id = "a" },
		`task "b": policy: unknown policy 2`:                                                      func(j *job) { j.Tasks[1].Policy = 2 },
		`task "a": dependencies: 0 is not below`:                                                  func(j *job) { j.Tasks[0].Dependencies = []uint32{0} },
		`task "b": conditions: has 2, and dependencies has 1`:                                     func(j *job) { j.Tasks[1].Conditions = []dtaskv1.Condition{2, 2} },
		`task "b": conditions: unknown condition 7`:                                               func(j *job) { j.Tasks[1].Conditions = []dtaskv1.Condition{7} },
		`task "b": dependencies: 0 follows 0`:                                                     func(j *job) { j.Tasks[1].Dependencies = []uint32{0, 0} },
		`task "b": dependencies: 4294967295 is not below`:                                         func(j *job) { j.Tasks[1].Dependencies = []uint32{1<<32 - 1} },
		`task "a": must have exactly one of command, run and type, but has 0`:                     func(j *job) { j.Tasks[0].Body = nil },
		`task "b": must have exactly one of command, run and type, but has 2`:                     func(j *job) { j.Tasks[1].Body.Run = "x" },
		`task "a": command: contains a NUL`:                                                       func(j *job) { j.Tasks[0].Body.Command = []string{"a", "\x00"} },
		`task "b": inputs[0]: is empty`:                                                           func(j *job) { j.Tasks[1].Body.Inputs = []string{""} },
		`task "b": output: has 4,097 bytes`:                                                       func(j *job) { j.Tasks[1].Body.Output = strings.Repeat("p", MaxPathBytes+1) },
		`task "b": output: "b.json" is relative`:                                                  func(j *job) { j.Tasks[1].Body.Output = "b.json" },
		`task "b": output: "/x" is the output of task "a", too`:                                   func(j *job) { j.Tasks[0].Body.Output, j.Tasks[1].Body.Output = "/x", "/x" },
		`task "b": payload: has 131,073 bytes`:                                                    func(j *job) { j.Tasks[1].Body.Payload = make([]byte, MaxPayload+1) },
		`task "b": has 400,0`:                                                                     func(j *job) { j.Tasks[1].Body.Inputs = []string{strings.Repeat("p", 400_000)} },
		"job.tasks[0]: must have exactly one of command, run and type, but has 0":                 func(j *job) { j.Tasks[0] = nil },
		`job.policies[1].execution: EXECUTION_UNSPECIFIED`:                                        func(j *job) { j.Header.Policies[1] = nil },
		`task "a": run: has 40,000 bytes`:                                                         func(j *job) { j.Tasks[0].Body = &dtaskv1.TaskBody{Run: strings.Repeat("r", 40_000)} },
		`task "a": command: has an empty program name`:                                            func(j *job) { j.Tasks[0].Body.Command[0] = "" },
		`job.policies[0].resources: has 65 entries`:                                               func(j *job) { policy(j).Resources = manyResources(65) },
		`job.policies[0].retry.multiplier: 100001 thousandth`:                                     func(j *job) { policy(j).Retry.MultiplierPermille = 100_001 },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			j := sound(t)
			if fs := Check(j); fs != nil {
				t.Fatalf("the job is not sound: %v", fs)
			}
			spoil(j)
			fs := Check(j)
			if len(fs) == 0 || !strings.Contains(fs.Error(), want) {
				t.Errorf("got %v", fs)
			}
			for _, f := range fs {
				if f.Do == "" || f.Line != 0 {
					t.Errorf("fault %+v", f)
				}
			}
		})
	}
}

func TestTheNextJobWithTheSameHeaderIsCheckedLikeTheFirst(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"n", ""} {
		h := plainHeader()
		h.Name = name
		reused := NewChecker(h, CheckOptions{Total: 1})
		_ = reused.Seal()
		for round, tasks := range [][]*dtaskv1.TaskSpec{
			{{Id: "a", Body: &dtaskv1.TaskBody{}}, {Id: "b", Body: &dtaskv1.TaskBody{}}},
			{{Id: "b", Body: &dtaskv1.TaskBody{}}, {Id: "a", Body: &dtaskv1.TaskBody{}}, {Id: "b", Body: &dtaskv1.TaskBody{}}},
			{{Id: "a", Body: &dtaskv1.TaskBody{}}},
		} {
			anew := NewChecker(h, CheckOptions{Total: 2})
			reused.Next(2)
			_, _ = anew.Add(tasks), reused.Add(tasks) // Seal tells of all
			want, got := anew.Seal(), reused.Seal()
			if !slices.Equal(got, want) || reused.bytes != anew.bytes {
				t.Errorf("name %q, job %d: got %v with %d bytes, want %v with %d", name, round, got, reused.bytes, want, anew.bytes)
			}
		}
	}
}

func manyResources(n int) map[string]int64 {
	m := map[string]int64{}
	for i := range n {
		m[fmt.Sprintf("r%d", i)] = 1
	}
	return m
}

func TestJobInPartsIsCheckedLikeAWholeOne(t *testing.T) {
	t.Parallel()
	j := sound(t)
	c := NewChecker(j.GetHeader(), CheckOptions{Total: 2})
	for _, task := range j.GetTasks() {
		if fs := c.Add([]*dtaskv1.TaskSpec{task}); fs != nil {
			t.Fatal(fs)
		}
	}
	if fs := c.Seal(); fs != nil {
		t.Fatal(fs)
	}
	c = NewChecker(j.GetHeader(), CheckOptions{})
	if fs := c.Add(j.GetTasks()[1:]); len(fs) != 1 {
		t.Errorf("a task before the one that it depends on: got %v", fs)
	}
}

func TestCheckerStopsAfterManyFaults(t *testing.T) {
	t.Parallel()
	j := sound(t)
	j.Tasks = make([]*dtaskv1.TaskSpec, 1000)
	fs := Check(j)
	if len(fs) != maxFaults+1 || fs[maxFaults].Where != "job" {
		t.Errorf("got %d faults, the last %v", len(fs), fs[len(fs)-1])
	}
}

func TestPartsMustAddUpToTheAnnouncedJob(t *testing.T) {
	t.Parallel()
	j := sound(t)
	for name, c := range map[string]struct {
		opt   CheckOptions
		tasks []*dtaskv1.TaskSpec
		want  string
	}{
		"too few":      {CheckOptions{Total: 3}, j.GetTasks(), "has 2 tasks, but 3 were announced"},
		"too many":     {CheckOptions{Total: 1}, j.GetTasks(), "has 2 tasks, but 1 were announced"},
		"none":         {CheckOptions{}, nil, "is empty"},
		"a million":    {CheckOptions{Total: MaxTasks + 1}, j.GetTasks(), "exceeds 1,000,000 tasks"},
		"again":        {CheckOptions{}, append([]*dtaskv1.TaskSpec{j.GetTasks()[0]}, j.GetTasks()[0]), "duplicate id of tasks 0 and 1"},
		"large":        {CheckOptions{MaxPayload: 4}, []*dtaskv1.TaskSpec{{Id: "a", Body: &dtaskv1.TaskBody{Run: "x", Payload: make([]byte, 5)}}}, "has 5 bytes"},
		"many bytes":   {CheckOptions{}, heavy(MaxJobBytes/376_000+2, 0), "exceeds 268,435,456 bytes"},
		"many waiting": {CheckOptions{}, heavy(300, 14_000), "exceeds 4,000,000 dependencies"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := NewChecker(j.GetHeader(), c.opt)
			check.Add(c.tasks)
			if fs := check.Seal(); !strings.Contains(fs.Error(), c.want) {
				t.Errorf("got %.300v", fs)
			}
		})
	}
}

// heavy is n sound tasks, each with 376,000 bytes of inputs, or each with so
// many dependencies on as many light tasks before them.
func heavy(n, dependencies int) []*dtaskv1.TaskSpec {
	light, body := &dtaskv1.TaskBody{Run: "x"}, &dtaskv1.TaskBody{Run: "x"}
	if dependencies == 0 {
		body.Inputs = slices.Repeat([]string{strings.Repeat("i", 4000)}, 94)
	}
	needs := make([]uint32, dependencies)
	var out []*dtaskv1.TaskSpec
	for i := range needs {
		needs[i] = uint32(i)
		out = append(out, &dtaskv1.TaskSpec{Id: fmt.Sprintf("light%d", i), Body: light})
	}
	for i := range n {
		out = append(out, &dtaskv1.TaskSpec{Id: fmt.Sprint(i), Body: body, Dependencies: needs})
	}
	return out
}
