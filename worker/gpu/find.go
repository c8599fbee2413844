package gpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Choices of [Find] beside lists.
const (
	Auto = "auto" // those of the machine
	None = "none"
)

// toolTimeout is how long nvidia-smi may take. Without a persistent driver, it starts each GPU,
// which takes some seconds.
const toolTimeout = 30 * time.Second

// Check returns an error if choice is neither empty, auto, none, nor a list.
func Check(choice string) error {
	if choice == "" || choice == Auto || choice == None {
		return nil
	}
	_, err := parse(choice)
	return err
}

// Find returns the GPUs of a choice: auto or empty for those that this process may use, none,
// or a list of indexes from 0 or UUIDs, after nvidia: (the default) or amd:.
//
// With auto, CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES in the environment of the worker
// counts first. Otherwise GPUs are found by their device files, and those of NVIDIA by
// nvidia-smi -L if it is installed, because only it knows the parts of a GPU (MIG). A machine
// with GPUs of both vendors offers those of NVIDIA. An error means that there are GPUs which
// could not be listed.
func Find(ctx context.Context, choice string) (Devices, error) {
	switch choice {
	case "", Auto:
		return thisMachine().find(ctx)
	case None:
		return Devices{}, nil
	}
	return parse(choice)
}

// machine is what is known of one; in tests, of another one than this.
type machine struct {
	root   fs.FS // its files
	getenv func(name string) (value string, set bool)
	// list runs nvidia-smi -L. The error is exec.ErrNotFound if it is not installed.
	list func(ctx context.Context) (string, error)
}

func thisMachine() machine {
	return machine{root: os.DirFS("/"), getenv: os.LookupEnv, list: runTool}
}

func runTool(ctx context.Context) (string, error) {
	tool, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return "", exec.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool, "-L").Output() //nolint:gosec // found in PATH
	if err != nil {
		return "", fmt.Errorf("nvidia-smi -L: %w", err)
	}
	return string(out), nil
}

func (m machine) find(ctx context.Context) (Devices, error) {
	for _, vendor := range []Vendor{NVIDIA, AMD} {
		if list, set := m.getenv(variables[vendor]); set {
			return visible(vendor, list)
		}
	}
	if count := m.nvidiaFiles(); count > 0 {
		text, err := m.list(ctx)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return Devices{Vendor: NVIDIA, IDs: indexes(count)}, nil
		case err != nil:
			return Devices{}, err
		}
		return Devices{Vendor: NVIDIA, IDs: parseTool(text)}, nil
	}
	if count := m.amdNodes(); count > 0 {
		return Devices{Vendor: AMD, IDs: indexes(count)}, nil
	}
	return Devices{}, nil
}

// visible reads the variable of a vendor. Its libraries take an empty list, or -1, for none.
func visible(vendor Vendor, list string) (Devices, error) {
	list = strings.ReplaceAll(list, " ", "")
	if list == "" || list == "-1" || list == "NoDevFiles" {
		return Devices{}, nil
	}
	d, err := parse(string(vendor) + ":" + list)
	if err != nil {
		return Devices{}, fmt.Errorf("%s of the worker's environment: %w", variables[vendor], err)
	}
	return d, nil
}

// indexes returns the first count indexes: those of the GPUs that a process sees. The numbers
// of device files can be others.
func indexes(count int) []string {
	ids := make([]string, min(count, maxDevices))
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	return ids
}

var nvidiaFile = regexp.MustCompile(`^nvidia[0-9]+$`)

func (m machine) nvidiaFiles() (count int) {
	files, _ := fs.ReadDir(m.root, "dev") // without it, the count is 0
	for _, file := range files {
		if nvidiaFile.MatchString(file.Name()) {
			count++
		}
	}
	return count
}

// Lines of nvidia-smi -L, for example:
//
//	GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6)
//	  MIG 3g.20gb     Device  0: (UUID: MIG-6d0aa68a-72d4-5bb0-9b8c-4e3f0e1e7d90)
var (
	gpuLine = regexp.MustCompile(`^GPU (\d+): `)
	migLine = regexp.MustCompile(`^\s+MIG .*\(UUID: ([^)]+)\)`)
)

// parseTool returns the GPUs of nvidia-smi -L: by index, because not every program takes the
// UUID of a GPU; or the parts of those that are divided, which have no index.
func parseTool(text string) []string {
	var ids []string
	divided := false // the last GPU of the list has parts
	for line := range strings.Lines(text) {
		if m := gpuLine.FindStringSubmatch(line); m != nil {
			ids, divided = append(ids, m[1]), false
		} else if m := migLine.FindStringSubmatch(line); m != nil && len(ids) > 0 {
			if !divided {
				ids, divided = ids[:len(ids)-1], true
			}
			ids = append(ids, m[1])
		}
	}
	return ids[:min(len(ids), maxDevices)]
}

// amdNodes counts the GPUs that AMD's driver lists and whose device file is there: a container
// may have only some of them.
func (m machine) amdNodes() (count int) {
	if _, err := fs.Stat(m.root, "dev/kfd"); err != nil {
		return 0
	}
	nodes, _ := fs.Glob(m.root, "sys/class/kfd/kfd/topology/nodes/*/properties") // the pattern is valid
	for _, node := range nodes {
		text, err := fs.ReadFile(m.root, node)
		if err != nil {
			continue // it has gone
		}
		minor := property(string(text), "drm_render_minor")
		if property(string(text), "simd_count") == 0 || minor == 0 {
			continue // a processor
		}
		if _, err := fs.Stat(m.root, path.Join("dev/dri", fmt.Sprintf("renderD%d", minor))); err == nil {
			count++
		}
	}
	return count
}

// property returns the value of a line NAME VALUE, or 0.
func property(text, name string) int {
	for line := range strings.Lines(text) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			number, _ := strconv.Atoi(value) // 0 if it is not a number
			return number
		}
	}
	return 0
}
