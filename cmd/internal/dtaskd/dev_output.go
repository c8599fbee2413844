package dtaskd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// What --dev prints for the user. Errors of writing are ignored: there is no other way to
// report them.

// defaultAddress is the default of --listen, and where dtaskctl finds a coordinator without
// --addr and DTASK_ADDR.
const defaultAddress = "127.0.0.1:7460"

// welcome is what --dev prints when it is ready. Its commands can be pasted into a shell.
type welcome struct {
	listen, http, dir string
	ctl               string // dtaskctl with its address
	example           string // path of a job file; empty: not found
}

func newWelcome(listen, http, dir string) welcome {
	self, err := os.Executable()
	if err != nil {
		self = "" // then dtaskctl must be in PATH
	}
	w := welcome{listen: listen, http: http, dir: dir, ctl: quoteWord(controlProgram(self)), example: exampleFile(self)}
	if listen != defaultAddress || os.Getenv("DTASK_ADDR") != "" {
		w.ctl += " --addr " + listen
	}
	return w
}

// controlProgram returns the dtaskctl that belongs to this program: its path, or only its
// name if a shell finds it by that.
func controlProgram(self string) string {
	const name = "dtaskctl"
	beside := filepath.Join(filepath.Dir(self), name)
	info, err := os.Stat(beside)
	if self == "" || err != nil {
		return name
	}
	if found, err := exec.LookPath(name); err == nil {
		if same, err := os.Stat(found); err == nil && os.SameFile(info, same) {
			return name
		}
	}
	return beside
}

// exampleFile returns the path of an example in the source tree that this program was
// built in.
func exampleFile(self string) string {
	path := filepath.Join(filepath.Dir(filepath.Dir(self)), "examples", "diamond.yaml")
	if _, err := os.Stat(path); self == "" || err != nil {
		return ""
	}
	return path
}

func (w welcome) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, `dtask is running: one coordinator and one worker in this process.

  clients, workers  %s
`, w.listen)
	if w.http != "" {
		_, _ = fmt.Fprintf(out, "  metrics, health   http://%[1]s/metrics  http://%[1]s/healthz  http://%[1]s/readyz\n", w.http)
	}
	_, _ = fmt.Fprintf(out, `  data directory    %s

Every user of this machine may run commands as the user of this process, since connections
on loopback need no credentials. For others on the machine, use dtaskd init instead.

Try in another terminal:

  %[2]s run --wait -- echo hello
  %[2]s submit --type prime --payload 999999937 --wait
`, w.dir, w.ctl)
	if w.example != "" {
		_, _ = fmt.Fprintf(out, "  %s submit %s --wait\n", w.ctl, quoteWord(w.example))
	}
	_, _ = fmt.Fprintf(out, `  %s status @last

Press Ctrl-C to stop.
`, w.ctl)
}

// printStopping tells the user what --dev waits for after the first signal.
func printStopping(out io.Writer, running int) {
	switch running {
	case 0:
		_, _ = fmt.Fprintln(out, "\nStopping.")
		return
	case 1:
		_, _ = fmt.Fprint(out, "\nStopping: waiting for 1 running task")
	default:
		_, _ = fmt.Fprintf(out, "\nStopping: waiting for %d running tasks", running)
	}
	_, _ = fmt.Fprintf(out, ", at most %d s.\nPress Ctrl-C again to stop them now, and a third time to exit immediately.\n",
		int(devDrain/time.Second))
}
