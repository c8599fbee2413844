package faultfs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/dtask/dtask/test/chaos/faultfs/mount"
	"github.com/dtask/dtask/test/cluster"
)

// Operations that a rule can select.
const (
	Read  = mount.OpRead
	Write = mount.OpWrite // and changes of length
	Sync  = mount.OpSync  // of files and directories
	Names = mount.OpNames // making, renaming and removing
)

// answerLimit bounds the wait for an answer. It is a guard: no answer waits for a hanging operation.
const answerLimit = 30 * time.Second

// Available returns nil if disks can be mounted here, or an error that names what is
// missing.
func Available() error {
	switch {
	case runtime.GOOS != "linux":
		return errors.New("fault file system unavailable: requires Linux")
	case os.Geteuid() != 0:
		return errors.New("fault file system unavailable: mounting requires root")
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("fault file system unavailable: %w", err)
	}
	return fuse.Close()
}

// Build builds faultfsd into a directory and returns its path.
func Build(ctx context.Context, dir string) (program string, err error) {
	root, err := cluster.Root()
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "faultfsd")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./test/chaos/faultfs/faultfsd")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building faultfsd: %w\n%s", err, out)
	}
	return program, nil
}

// A Disk is mounted until Close. Safe for concurrent use.
type Disk struct {
	// Dir is the mount point.
	Dir string

	cmd  *exec.Cmd
	in   io.WriteCloser
	mu   sync.Mutex // held during a request
	line chan answerLine
}

// answerLine is a line, or the error that ended the answers.
type answerLine struct {
	answer mount.Answer
	err    error
}

// New starts faultfsd, which mounts an empty disk at dir. It creates the directory
// if necessary.
func New(ctx context.Context, program, dir string) (*Disk, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of a disk: %w", err)
	}
	// Close ends the process after all its users, not a context.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = processAttributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting faultfsd: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting faultfsd: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting faultfsd: %w", err)
	}
	d := &Disk{Dir: dir, cmd: cmd, in: in, line: make(chan answerLine, 1)}
	go d.read(out)
	if _, err := d.answer(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// read passes on answers until the process exits, and then returns its error
// forever.
func (d *Disk) read(out io.Reader) {
	defer close(d.line)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l answerLine
		l.err = json.Unmarshal(lines.Bytes(), &l.answer)
		d.line <- l
	}
}

func (d *Disk) answer() (mount.Answer, error) {
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	select {
	case l, ok := <-d.line:
		switch {
		case !ok:
			return mount.Answer{}, errors.New("faultfsd has exited")
		case l.err != nil:
			return mount.Answer{}, fmt.Errorf("reading answer of faultfsd: %w", l.err)
		case l.answer.Error != "":
			return l.answer, errors.New("faultfsd: " + l.answer.Error)
		}
		return l.answer, nil
	case <-limit.C:
		return mount.Answer{}, errors.New("faultfsd did not answer")
	}
}

func (d *Disk) ask(q mount.Request) (mount.Answer, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return mount.Answer{}, fmt.Errorf("asking faultfsd: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.in.Write(append(text, '\n')); err != nil {
		return mount.Answer{}, fmt.Errorf("asking faultfsd: %w", err)
	}
	return d.answer()
}

// do is ask for requests whose answer has only an error.
func (d *Disk) do(q mount.Request) error {
	_, err := d.ask(q)
	return err
}

// Close unmounts the disk, ends its process, and waits for it. The contents of the
// disk are lost. Hanging operations fail.
func (d *Disk) Close() error {
	_ = d.in.Close() // ends the process
	for range d.line {
		continue // an answer without a reader
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("ending faultfsd: %w", err)
	}
	return nil
}
