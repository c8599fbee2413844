package packaging

import (
	"bufio"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// imageVariable runs the tests that need a container engine.
const imageVariable = "DTASK_IMAGE"

// programs are the names of the program in the image.
var programs = []string{"dtask-worker", "dtaskctl", "dtaskd"}

// maxImage bounds the image, in bytes.
const maxImage = 60_000_000

// prelude makes docker compose work with an engine that has only docker-compose, and a
// cluster possible without access to the image of Prometheus.
const prelude = `set -eu -o pipefail
docker() {
	if [ "$1" = compose ] && ! command docker compose version >/dev/null 2>&1; then
		shift
		command docker-compose "$@"
	else
		command docker "$@"
	fi
}
if ! command docker image inspect prom/prometheus:v2.53.5 >/dev/null 2>&1; then
	export COMPOSE_FILE=compose.yaml:without-prometheus.yaml
fi
`

// withoutPrometheus replaces Prometheus by a program that the image of dtask has.
const withoutPrometheus = `services:
  prometheus:
    image: dtask:latest
    entrypoint: [/dtaskd]
    command: [--dev, --data-dir, /tmp/prometheus]
    tmpfs: [/tmp]
`

// shell runs a script in a directory, and returns its output.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// documentedBlock returns the first block of docs/deploy.md below a heading.
func documentedBlock(t *testing.T, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(read(t, "docs/deploy.md"), "\n## "+heading+"\n")
	_, block, begins := strings.Cut(section, "\n```sh\n")
	block, _, ends := strings.Cut(block, "```\n")
	if !found || !begins || !ends {
		t.Fatalf("docs/deploy.md has no block below %q", heading)
	}
	return block
}

func TestTheDocumentedContainersSurviveTheLossOfTheirLeader(t *testing.T) {
	if os.Getenv(imageVariable) == "" {
		t.Skipf("set %s=1 to use the container engine of this machine", imageVariable)
	}
	shell(t, root(t), "make image")
	wantSmallImage(t)

	// A copy, because the commands write secrets beside compose.yaml.
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root(t), "deploy"))); err != nil {
		t.Fatal(err)
	}
	compose := filepath.Join(dir, "docker")
	write(t, filepath.Join(compose, "without-prometheus.yaml"), withoutPrometheus, 0o600)
	t.Cleanup(func() {
		// Without the context of the test, which is done.
		cmd := exec.Command("bash", "-c", prelude+"docker compose -p dtask-test down -v")
		cmd.Dir = compose
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("removing the cluster: %v\n%s", err, out)
		}
	})
	block := strings.ReplaceAll(documentedBlock(t, "Containers"), "-p dtask ", "-p dtask-test ")
	block = strings.ReplaceAll(block, "cd deploy/docker\n", "")
	out := shell(t, compose, "umask 022\n"+prelude+block)
	if !strings.Contains(out, "completed in") {
		t.Fatalf("the job did not complete:\n%s", out)
	}

	began := time.Now()
	out = shell(t, compose, prelude+`
leader=$(docker compose -p dtask-test exec -T n1 /dtaskctl cluster status | sed -n 's/^leader \(n[0-9]\),.*/\1/p')
docker compose -p dtask-test kill -s KILL "$leader"
other=n1; [ "$leader" = n1 ] && other=n2
for i in $(seq 100); do
	new=$(docker compose -p dtask-test exec -T $other /dtaskctl cluster status | sed -n 's/^leader \(n[0-9]\),.*/\1/p')
	[ -n "$new" ] && [ "$new" != "$leader" ] && break
done
docker compose -p dtask-test exec -T "$new" /dtaskctl submit --type prime --payload 999999937 --wait
docker compose -p dtask-test up -d "$leader"
`)
	if !strings.Contains(out, "completed in") {
		t.Errorf("the job did not complete after the loss of the leader:\n%s", out)
	}
	t.Logf("another leader ran a job and the old one was back after %v", time.Since(began).Round(time.Millisecond))
}

// wantSmallImage checks the size and the user of the image.
func wantSmallImage(t *testing.T) {
	t.Helper()
	var images []struct {
		Size   int64
		Config struct{ User string }
	}
	if err := json.Unmarshal([]byte(shell(t, root(t), "docker image inspect dtask:latest")), &images); err != nil {
		t.Fatal(err)
	}
	if i := images[0]; i.Size > maxImage || i.Config.User != "65532:65532" {
		t.Errorf("%d bytes, want at most %d; user %q", i.Size, maxImage, i.Config.User)
	}
	for _, name := range programs {
		if out := shell(t, root(t), "docker run --rm --entrypoint /"+name+" dtask:latest --version"); !strings.Contains(out, name+" version") {
			t.Errorf("%s --version printed %q", name, out)
		}
	}
}

// The program that make image puts into the image is each of the three under its name, and
// small. No container engine is needed.
func TestTheImageHasOneProgramUnderThreeNames(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links a program")
	}
	dir := t.TempDir()
	shell(t, root(t), "make -s image-files IMAGE="+dir+" VERSION="+releaseVersion)
	size := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the files of the image have %d bytes", size)
	if size > maxImage {
		t.Errorf("%d bytes, want at most %d", size, maxImage)
	}
	bin := filepath.Join(dir, "root")
	for _, name := range programs {
		if out := shell(t, bin, "./"+name+" --version"); out != name+" version "+releaseVersion+"\n" {
			t.Errorf("%s --version printed %q", name, out)
		}
	}
	if out := shell(t, bin, "./dtask --version && exit 1; [ $? = 2 ]"); !strings.Contains(out, `unknown name "dtask"`) {
		t.Errorf("dtask printed %q", out)
	}
	runCommand(t, bin)
}

// runCommand runs a job with a command, which needs a supervisor: the same program again,
// under a fourth name.
func runCommand(t *testing.T, bin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := exec.CommandContext(ctx, filepath.Join(bin, "dtaskd"), "--dev", "--listen", "127.0.0.1:0", "--http", "")
	cluster.Cancel = func() error { return cluster.Process.Signal(os.Interrupt) }
	cluster.Env = append(os.Environ(), "DTASK_ADDR=", "TMPDIR="+t.TempDir())
	out, err := cluster.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cluster.Wait() // it was stopped by a signal
	}()
	address := regexp.MustCompile(`--addr (127\.0\.0\.1:[0-9]+)`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if found := address.FindStringSubmatch(lines.Text()); found != nil {
			printed := shell(t, bin, "./dtaskctl --addr "+found[1]+" run --wait -- sh -c 'echo it runs'")
			if !strings.Contains(printed, "it runs") {
				t.Errorf("the command printed %q", printed)
			}
			return
		}
	}
	t.Error("dtaskd --dev printed no address")
}
