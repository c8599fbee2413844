package packaging

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/test/cluster"
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

// A composition is a cluster of containers that the commands of docs/deploy.md have set up.
type composition struct {
	t   *testing.T
	dir string // of compose.yaml
}

// project is the name of the composition, and network that of its network.
const (
	project = "dtask-test"
	network = project + "_default"
)

// newComposition builds the image and sets up a cluster, which ends with the test.
func newComposition(t *testing.T) *composition {
	t.Helper()
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
	c := &composition{t, filepath.Join(dir, "docker")}
	write(t, filepath.Join(c.dir, "without-prometheus.yaml"), withoutPrometheus, 0o600)
	t.Cleanup(func() {
		// Without the context of the test, which is done.
		cmd := exec.Command("bash", "-c", prelude+removeStrangers+"docker compose -p "+project+" down -v")
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("removing the cluster: %v\n%s", err, out)
		}
	})
	block := strings.ReplaceAll(documentedBlock(t, "Containers"), "-p dtask ", "-p "+project+" ")
	block = strings.ReplaceAll(block, "cd deploy/docker\n", "")
	if out := c.run("umask 022\n" + block); !strings.Contains(out, "completed in") {
		t.Fatalf("the job did not complete:\n%s", out)
	}
	return c
}

// run runs a script beside compose.yaml, and returns its output.
func (c *composition) run(script string) string {
	c.t.Helper()
	return shell(c.t, c.dir, prelude+script)
}

// status reads the status of the cluster in the container of a coordinator.
func (c *composition) status(coordinator string) (status document.Cluster) {
	c.t.Helper()
	out := c.run("docker compose -p " + project + " exec -T " + coordinator + " /dtaskctl cluster status -o json 2>/dev/null")
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	return status
}

// inspect returns a property of the container of a service.
func (c *composition) inspect(service, format string) string {
	c.t.Helper()
	return strings.TrimSpace(c.run("docker inspect -f '" + format + `' "$(docker compose -p ` + project + " ps -q " + service + ` 2>/dev/null)" 2>/dev/null`))
}

func TestTheDocumentedContainersSurviveTheLossOfTheirLeader(t *testing.T) {
	c := newComposition(t)
	began := time.Now()
	out := c.run(`
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

// stranger begins the names of containers that take the addresses of others.
const stranger = project + "-stranger"

// takeAddress starts strangers until one has the address, which the engine gives to any of the
// first containers after it became free. The shell has the address in $address.
const takeAddress = `
for i in $(seq 10); do
	docker run -d --name ` + stranger + `-$i --network ` + network + ` dtask:latest --dev --data-dir /tmp/data
	taken=$(docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' ` + stranger + `-$i)
	[ "$taken" != "$address" ] || break
done
[ "$taken" = "$address" ]
`

// backLimit bounds the time from the start of a container with another address until it is a
// voter without lag. On two cores without other load it took 1.0 to 1.6 s in twelve moves.
const backLimit = 5 * time.Second

// removeStrangers ends all containers of takeAddress, if there are any.
const removeStrangers = `docker ps -aq --filter name=` + stranger + ` | xargs -r docker rm -f
`

// A killed coordinator starts with another address, while a container that is not of the
// cluster has its old one. The others reach it under its name.
func TestAContainerWithAnotherAddressIsAVoterAgain(t *testing.T) {
	c := newComposition(t)
	for _, lost := range []string{"n2", "n1"} { // the leader of a new cluster is n1
		asked := map[string]string{"n1": "n2", "n2": "n1"}[lost]
		before := c.inspect(lost, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
		c.run("docker compose -p " + project + " kill -s KILL " + lost + `
docker compose -p ` + project + " rm -f " + lost + "\naddress=" + before + takeAddress +
			"docker compose -p " + project + " up -d " + lost)
		began, err := time.Parse(time.RFC3339Nano, c.inspect(lost, "{{.State.StartedAt}}"))
		if err != nil {
			t.Fatal(err)
		}
		c.awaitVoter(asked, lost)
		back := time.Since(began).Round(time.Millisecond)
		after := c.inspect(lost, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
		if after == before {
			t.Errorf("%s has its address %s again: nothing was tested", lost, after)
		}
		if back > backLimit {
			t.Errorf("%s was a voter without lag only %v after its start, want at most %v", lost, back, backLimit)
		}
		t.Logf("%s moved from %s to %s, and is a voter without lag %v after its start", lost, before, after, back)
		c.run(removeStrangers)
	}
	leader := c.status("n3").Leader
	out := c.run("docker compose -p " + project + " exec -T " + leader + " /dtaskctl submit --type prime --payload 999999937 --wait")
	if !strings.Contains(out, "completed in") {
		t.Errorf("the job did not complete:\n%s", out)
	}
}

// awaitVoter waits until the status of a coordinator has another one as a voter that answers
// and has applied all entries.
func (c *composition) awaitVoter(asked, id string) {
	c.t.Helper()
	err := cluster.Until(c.t.Context(), id+" is a voter", time.Minute, func(context.Context) error {
		status := c.status(asked) //nolint:contextcheck // it uses the context of the test
		for _, m := range status.Members {
			if m.ID == id && m.Voter && m.Lag == 0 && (m.State == "follower" || m.State == "leader") && status.Leader != "" {
				return nil
			}
		}
		return fmt.Errorf("%w: %+v", cluster.ErrNotYet, status)
	})
	if err != nil {
		c.t.Error(err)
	}
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
	dev := exec.CommandContext(ctx, filepath.Join(bin, "dtaskd"), "--dev", "--listen", "127.0.0.1:0", "--http", "")
	dev.Cancel = func() error { return dev.Process.Signal(os.Interrupt) }
	dev.Env = append(os.Environ(), "DTASK_ADDR=", "TMPDIR="+t.TempDir())
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = dev.Wait() // it was stopped by a signal
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
