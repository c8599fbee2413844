package worker

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A run of a schedule for a tick of 28 March in Berlin, which is 27 March in UTC.
func berlinRun() *dtaskv1.ScheduledRun {
	return &dtaskv1.ScheduledRun{Schedule: "nightly", TickMs: 1_774_654_200_000, PreviousMs: 1_774_567_800_000, Timezone: "Europe/Berlin", Date: "2026-03-28"}
}

func TestATaskOfARunHasTheValuesOfItsExpressions(t *testing.T) {
	t.Parallel()
	array := &dtaskv1.ArrayItems{Indexes: []uint32{4}, Size: 5}
	marked := func(b *dtaskv1.TaskBody) *dtaskv1.TaskBody {
		b.Scheduled = true
		return b
	}
	env := map[string]string{"DAY": "day ${{ scheduled.date }}", "RAW": "$${{ x }}"}
	cases := []struct {
		name  string
		body  *dtaskv1.TaskBody
		array *dtaskv1.ArrayItems
		run   *dtaskv1.ScheduledRun
		want  string // its result, or its error
	}{
		{"a command", marked(&dtaskv1.TaskBody{Command: []string{"echo", "${{ scheduled.date }}", "${{ scheduled.at }}", "${{ scheduled.previous }}", "$${{ x }}"}}), nil, berlinRun(), "2026-03-28 2026-03-27T23:30:00Z 2026-03-26T23:30:00Z ${{ x }}"},
		{"the environment", marked(shell(`echo "$DAY $RAW $DTASK_SCHEDULED_AT"`)), nil, berlinRun(), "day 2026-03-28 ${{ x }} 2026-03-27T23:30:00Z"},
		{"the payload", marked(&dtaskv1.TaskBody{Command: []string{"cat"}, Payload: []byte(`{"day":"${{ scheduled.date }}"}`)}), nil, berlinRun(), `{"day":"2026-03-28"}`},
		{"an array", marked(shell(`echo "${{ index }} ${{ scheduled.date }} $DAY"`)), array, berlinRun(), "4 2026-03-28 day 2026-03-28"},
		{"a run by hand", marked(shell(`echo "(${{ scheduled.date }}${{ scheduled.at }}${{ scheduled.previous }})"`)), nil, &dtaskv1.ScheduledRun{Schedule: "nightly", Manual: true, Timezone: "Europe/Berlin"}, "()"},
		{"a task that is not marked", shell(`echo '${{ scheduled.date }}'`), nil, berlinRun(), "${{ scheduled.date }}"},
		{"a job of no schedule", marked(shell("echo ${{ scheduled.date }}")), nil, nil, "the task has an expression of the run of a schedule, but its job is not one"},
		{
			"a leader without the time zone", marked(shell("echo ${{ scheduled.date }}")), nil, &dtaskv1.ScheduledRun{Schedule: "nightly", TickMs: 1, Timezone: "Mars/Olympus"},
			`the leader does not know the time zone "Mars/Olympus" of the schedule: run the same version of dtaskd on all coordinators`,
		},
	}
	withLeader(t, Config{Slots: 2}, func(b *harness, l *leaderEnd) {
		t := b.t
		for i, c := range cases {
			policy := &dtaskv1.TaskPolicy{TimeoutMs: 60_000}
			if c.body.GetScheduled() {
				policy.Env = env
			}
			m := assignments(work{task: 0, body: c.body, policy: policy})
			m.Contexts[0].Job, m.Contexts[0].Run = uint64(100+i), c.run
			if c.array != nil {
				m.Extras = []*dtaskv1.AssignmentExtras{{Array: c.array}}
			}
			l.send(t, &dtaskv1.SessionResponse{Assignments: m})
		}
		for _, o := range l.outcomes(t, len(cases)) {
			c := cases[o.GetAttempt().GetJob()-100]
			if got := string(o.GetResult()) + o.GetError(); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
			if fatal := c.run == nil; o.GetFatal() != fatal {
				t.Errorf("%s: fatal = %t", c.name, o.GetFatal())
			}
		}
	})
}
