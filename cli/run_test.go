package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dtask/dtask/spec"
)

func TestAnInterruptedRunLeavesTheJobAndNamesTheCommandThatCancelsIt(t *testing.T) {
	t.Parallel()
	got := interrupted(t, "curl: 404", "run", "--wait", "--name", "slow", "--", "curl")
	if !strings.HasSuffix(got, "interrupted\nhint: the job continues: run dtaskctl wait 101 to wait for it, or dtaskctl cancel 101 to cancel it\n") {
		t.Errorf("got %q", got)
	}
}

func TestARunIsTheJobOfAJobFile(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, nil)
	cmd := new(cobra.Command)
	var f runFlags
	f.bind(a, cmd)
	if err := cmd.ParseFlags([]string{
		"--array", "0-9", "--cwd", "/srv/${{ index }}", "--env", "A=1,2=3", "--env", "B=${{ item }}", "--label", "team=data",
		"--resource", "cpu=2", "--resource", "memory=1GiB", "--priority", "high", "--task-timeout", "10m", "--retries", "2", "--preemptible", "--", "./ren der.sh", "--frame", "${{ index }}",
	}); err != nil {
		t.Fatal(err)
	}
	got, err := f.job(cmd.Flags().Args(), spec.Options{Owner: "me", Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	want, err := spec.Parse("f", []byte(`job:
  name: ren-der.sh
  priority: high
  labels: {team: data}
  tasks:
    - id: run
      command: [./ren der.sh, --frame, "${{ index }}"]
      array: {range: 0-9}
      cwd: /srv/${{ index }}
      env: {A: "1,2=3", B: "${{ item }}"}
      resources: {cpu: 2, memory: 1GiB}
      timeout: 10m
      preemptible: true
      retry: {max: 2}
`), spec.Options{Owner: "me", Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestACommandThatFailsIsNotRepeatedByDefault(t *testing.T) {
	t.Parallel()
	job, err := new(runFlags).job([]string{"false"}, spec.Options{Unfilled: true})
	if err != nil {
		t.Fatal(err)
	}
	retry := job.GetHeader().GetPolicies()[0].GetRetry()
	if retry == nil || retry.GetMax() != 0 || len(retry.GetExcept()) > 0 {
		t.Errorf("got %v, want no retries: a lost worker is not one", retry)
	}
}

func TestTheNameOfARunIsThatOfItsProgram(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		"echo": "echo", "/usr/bin/python3.12": "python3.12", "./deploy": "deploy", "dir/": "dir", "a b$c": "a-b-c",
		"größe": "gr--e", "/": "run", "..": "run", ".": "run", "${{": "run", strings.Repeat("x", 100): strings.Repeat("x", 63),
	} {
		if got := commandName(program); got != want {
			t.Errorf("%q: got %q, want %q", program, got, want)
		}
		if _, err := new(runFlags).job([]string{strings.ReplaceAll(program, "${{", "$")}, spec.Options{}); err != nil {
			t.Errorf("%q: %v", program, err)
		}
	}
}

func TestALineWithoutEndIsWrittenInParts(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	w := newLockedOutput(&stdout, &stderr, false).stdoutOf("run[7]: ")
	half := strings.Repeat("x", maxHeldLine/2)
	for range 3 {
		if _, err := w.Write([]byte(half)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.flush(); err != nil {
		t.Fatal(err)
	}
	if want := "run[7]: " + half + half + "\nrun[7]: " + half + "\n"; stdout.String() != want {
		t.Errorf("got %d bytes, want %d", stdout.Len(), len(want))
	}
}
