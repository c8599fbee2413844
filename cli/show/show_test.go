package show

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestEscapeSequencesAreRemoved(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                         "plain",
		"\x1b[31mred\x1b[0m":            "red",
		"\x1b]0;title\x07after":         "after",
		"\x1b]8;;http://x\x1b\\link":    "link",
		"two\nlines\tand\rmore":         "two lines and more",
		"bell\x07 null\x00 csi\u009b31": "bell null csi31",
		"cut \x1b[":                     "cut",
		"grün → 漢":                      "grün → 漢",
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q): got %q, want %q", in, got, want)
		}
	}
	if got := CleanText("a\n\tb\x1b[2J\n"); got != "a\n\tb\n" {
		t.Errorf("CleanText: got %q", got)
	}
}

func TestManyLevelsAreShortened(t *testing.T) {
	t.Parallel()
	for want, levels := range map[string][]uint32{
		"1 task in 1 level: 1":                                                  {1},
		"3 tasks in 2 levels: 2 → 1":                                            {2, 1},
		"10,002 tasks in 3 levels: 1 → 10,000 → 1":                              {1, 10000, 1},
		"8 tasks in 8 levels: 1 → 1 → 1 → 1 → 1 → 1 → 1 → 1":                    {1, 1, 1, 1, 1, 1, 1, 1},
		"12 tasks in 9 levels: 1 → 1 → 1 → 1 → 1 → … → 1 → 4":                   {1, 1, 1, 1, 1, 1, 1, 1, 4},
		"1,000 tasks in 10 levels: 100 → 100 → 100 → 100 → 100 → … → 100 → 100": {100, 100, 100, 100, 100, 100, 100, 100, 100, 100},
	} {
		if got := Levels(levels); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestALagHasATimeIfThatIsKnown(t *testing.T) {
	t.Parallel()
	p := NewPrinter(false, time.UnixMilli(0))
	p.Cluster(&dtaskv1.StatusResponse{Members: []*dtaskv1.Member{
		{Id: "n1", Lag: 5}, {Id: "n2", Lag: 5, LagMs: new(int64(1500))}, {Id: "n3", LagMs: new(int64(0))},
	}}, nil)
	var lags []string
	for line := range strings.Lines(p.buf.String()) {
		if strings.HasPrefix(line, "n") && !strings.HasPrefix(line, "no leader") {
			lags = append(lags, strings.Join(strings.Fields(line), " "))
		}
	}
	if want := []string{"n1 - - no 0 5 - - - -", "n2 - - no 0 5, 1.5s - - - -", "n3 - - no 0 0 - - - -"}; !slices.Equal(lags, want) {
		t.Errorf("got %q, want %q", lags, want)
	}
}

func TestTimesHaveAtMostTwoUnits(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000_000_000)
	for d, want := range map[time.Duration]string{
		0: "now", 59 * time.Second: "59s ago", 3 * time.Minute: "3m ago", 47 * time.Hour: "47h ago", 72 * time.Hour: "3d ago",
	} {
		if got := Ago(now.Add(-d).UnixMilli(), now); got != want {
			t.Errorf("Ago %s: got %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		12 * time.Millisecond: "12ms", 9870 * time.Millisecond: "9.8s", 12 * time.Second: "12s", 134 * time.Second: "2m14s",
		185 * time.Minute: "3h05m", 52 * time.Hour: "2d4h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration %s: got %q, want %q", d, got, want)
		}
	}
	if got := Ago(0, now) + Took(0, 5, now); got != "" {
		t.Errorf("unset time: got %q", got)
	}
}

func TestColorsDoNotShiftColumns(t *testing.T) {
	t.Parallel()
	var plain, colored strings.Builder
	for color, w := range map[bool]*strings.Builder{false: &plain, true: &colored} {
		table := NewTable("ID", "STATE", "NAME")
		table.Row("1", "running", "a")
		table.Row("2", "failed", "b")
		table.Row("10", "pending", "")
		p := NewPrinter(color, time.Time{})
		p.Table(table)
		w.Write(p.Bytes())
	}
	if want := "ID  STATE    NAME\n1   running  a\n2   failed   b\n10  pending  -\n"; plain.String() != want {
		t.Errorf("got\n%s\nwant\n%s", plain.String(), want)
	}
	stripped := CleanText(colored.String())
	if stripped != plain.String() || colored.String() == plain.String() {
		t.Errorf("got\n%q\nwithout colors, want\n%q", stripped, plain.String())
	}
}

func TestYAMLHasTheFieldsOfJSONInTheirOrder(t *testing.T) {
	t.Parallel()
	text, err := YAML(document.NewJob(&dtaskv1.Job{Id: "42", Name: "true", SubmittedAt: 1}))
	if err != nil {
		t.Fatal(err)
	}
	if want := "id: \"42\"\nname: \"true\"\n"; !strings.HasPrefix(string(text), want) {
		t.Errorf("got\n%s\nwant the prefix\n%s", text, want)
	}
	if !strings.Contains(string(text), "started_at: null\n") {
		t.Errorf("no null in\n%s", text)
	}
	if text, err = YAML(document.NewJobs(nil, false)); err != nil || string(text) != "jobs: []\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestErrorsInTablesAreShortened(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "exit 1": "exit 1", "exit 1\n": "exit 1", "exit 1\nlast words": "exit 1 …", strings.Repeat("x", 101): strings.Repeat("x", 100) + " …",
	} {
		if got := shorten(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestARetriedJobMayHaveFinishedSince(t *testing.T) {
	t.Parallel()
	for state, want := range map[dtaskv1.JobState]string{
		dtaskv1.JobState_JOB_STATE_RUNNING:   "job 7 (x) resumed: 1 of 2 tasks completed, 1 failed",
		dtaskv1.JobState_JOB_STATE_FAILED:    "job 7 (x) resumed and failed: 1 of 2 tasks completed, 1 failed",
		dtaskv1.JobState_JOB_STATE_CANCELLED: "job 7 (x) resumed and cancelled: 1 of 2 tasks completed, 1 failed",
	} {
		job := &dtaskv1.Job{Id: "7", Name: "x", State: state, TasksTotal: 2, TasksCompleted: 1, TasksByState: map[string]uint32{"failed": 1}}
		if got := Retried(job); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestReusedResultsAreNotCountedForAWorker(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]*dtaskv1.Task{
		"w1":       {Worker: "w1"},
		"(reused)": {ReusedJob: "12", ReusedTask: "count"},
	} {
		if got := executedBy(task); got != want {
			t.Errorf("%v: got %q, want %q", task, got, want)
		}
	}
}

func TestAJobShowsUntilWhenItIsScheduled(t *testing.T) {
	t.Parallel()
	j := &dtaskv1.Job{Id: "9", Name: "later", State: dtaskv1.JobState_JOB_STATE_PENDING, ScheduledUntil: 1_798_182_000_000}
	if got, want := jobState(j), "pending (scheduled until 2026-12-25T07:00:00Z)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.WaitsFor = []string{"4", "5", "6", "7"}
	if got, want := jobState(j), "pending (waits for 4, 5, 6 and 1 more)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	j.ScheduledUntil, j.WaitsFor = 0, nil
	if got := jobState(j); got != "pending" {
		t.Errorf("after that time: got %q", got)
	}
}

// A cluster that does not use queues has the same screens as before there were any.
func TestOnlyTheQueueDefaultIsNotShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queue *dtaskv1.Queue
		shown bool
	}{
		"at first":      {&dtaskv1.Queue{Name: "default", Waiting: 5}, false},
		"with settings": {&dtaskv1.Queue{Name: "default", Version: 1}, true},
		"paused":        {&dtaskv1.Queue{Name: "default", PausedAt: 1}, true},
		"another":       {&dtaskv1.Queue{Name: "etl", Version: 1}, true},
	} {
		p := NewPrinter(false, time.UnixMilli(0))
		p.Load(&dtaskv1.LoadResponse{Queues: []*dtaskv1.Queue{c.queue}}, nil)
		p.Cluster(&dtaskv1.StatusResponse{}, document.NewQueueSummary([]*dtaskv1.Queue{c.queue}))
		table, line := strings.Contains(p.buf.String(), "QUEUE"), strings.Contains(p.buf.String(), "1 queue")
		if table != c.shown || line != c.shown {
			t.Errorf("%s: the table is shown: %t, the line: %t, want %t", name, table, line, c.shown)
		}
	}
}

func TestTheTenBusiestOfManyQueuesAreShownByName(t *testing.T) {
	t.Parallel()
	var all []*dtaskv1.Queue
	for i := range uint64(13) {
		q := &dtaskv1.Queue{Name: fmt.Sprintf("q%02d", i), Version: 1, Waiting: i % 12, Running: 1}
		if i == 0 {
			q.PausedAt = 1
		}
		all = append(all, q)
	}
	p := NewPrinter(false, time.UnixMilli(0))
	p.busiestQueues(all)
	var first []string
	for line := range strings.Lines(p.buf.String()) {
		first = append(first, strings.Fields(line)[0])
	}
	if want := []string{"QUEUE", "q02", "q03", "q04", "q05", "q06", "q07", "q08", "q09", "q10", "q11", "…"}; !slices.Equal(first, want) {
		t.Errorf("got the lines %q, want %q", first, want)
	}
	if want := "… and 3 more with 1 waiting and 3 running, 1 of them paused: dtaskctl queue list\n"; !strings.HasSuffix(p.buf.String(), want) {
		t.Errorf("got\n%swant at the end %q", p.buf.String(), want)
	}
	if all[0].GetName() != "q00" {
		t.Error("the list of the caller has another order")
	}
}

func TestOneLineNamesPausedQueuesAndTheLongestWaits(t *testing.T) {
	t.Parallel()
	var all []*dtaskv1.Queue
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} {
		q := &dtaskv1.Queue{Name: name, Version: 1, OldestWaitUs: int64(i) * 61_000_000}
		if i < 5 {
			q.PausedAt = 1
		}
		all = append(all, q)
	}
	for _, c := range []struct {
		list []*dtaskv1.Queue
		want string
	}{
		{all, "6 queues; paused: a, b, c and 2 more; longest waits: f 5m05s, e 4m04s, d 3m03s\n"},
		{all[1:2], "1 queue; paused: b; longest waits: b 1m01s\n"},
		{[]*dtaskv1.Queue{{Name: "etl", Version: 1}, {Name: "default"}}, "2 queues\n"},
		{[]*dtaskv1.Queue{{Name: "etl", Version: 1, OldestWaitUs: 1_000_000}, {Name: "default", OldestWaitUs: 999_999}}, "2 queues; longest waits: etl 1.0s\n"},
		{[]*dtaskv1.Queue{{Name: "etl", Version: 1, OldestWaitUs: 999_999}, {Name: "default", OldestWaitUs: 3}}, "2 queues\n"},
	} {
		p := NewPrinter(false, time.UnixMilli(0))
		p.QueueSummary(document.NewQueueSummary(c.list))
		if got := p.buf.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A message has the keys of a limit that have the most tasks.
func TestTasksOfKeysThatAreLeftOutAreCounted(t *testing.T) {
	t.Parallel()
	l := &dtaskv1.Limit{
		Name: "tenant/*", Settings: &dtaskv1.LimitSettings{Running: 1}, Held: 1, Waiting: 7,
		Counters: []*dtaskv1.LimitCounter{{Use: "tenant/acme", Held: 1, Waiting: 4}},
	}
	for left, waiting := range map[bool]uint64{true: 7, false: 4} {
		l.Waiting = waiting
		p := NewPrinter(false, time.UnixMilli(0))
		p.Limit(l)
		if got := strings.Contains(string(p.Bytes()), "keys with fewer tasks are left out: they have 3 tasks"); got != left {
			t.Errorf("with %d tasks that wait: got %s", waiting, p.Bytes())
		}
	}
}
