package gpu

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// files returns a tree with these files, each with its contents after a space.
func files(list ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for _, file := range list {
		name, text, _ := strings.Cut(file, " ")
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

func environment(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { value, set := vars[name]; return value, set }
}

func prints(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

func notInstalled(context.Context) (string, error) { return "", exec.ErrNotFound }

const (
	twoGPUs = `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1b6a4a5e-5a3f-6c2b-a4b8-0d3f4b1c9e77)
`
	dividedGPU = `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6)
  MIG 3g.20gb     Device  0: (UUID: MIG-6d0aa68a-72d4-5bb0-9b8c-4e3f0e1e7d90)
  MIG 1g.5gb      Device  1: (UUID: MIG-f3a1bd2e-02f4-5d7c-8a11-2b1f6a5d3c44)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-1b6a4a5e-5a3f-6c2b-a4b8-0d3f4b1c9e77)
`
	amdProcessor = "cpu_cores_count 16\nsimd_count 0\ndrm_render_minor 0\n"
	amdGPU       = "cpu_cores_count 0\nsimd_count 256\ndrm_render_minor "
)

func TestTheGPUsOfAMachineAreFound(t *testing.T) {
	t.Parallel()
	nodes := []string{
		"dev/kfd", "sys/class/kfd/kfd/topology/nodes/0/properties " + amdProcessor,
		"sys/class/kfd/kfd/topology/nodes/1/properties " + amdGPU + "128\n",
		"sys/class/kfd/kfd/topology/nodes/2/properties " + amdGPU + "129\n",
	}
	for name, test := range map[string]struct {
		m      machine
		vendor Vendor
		ids    []string
	}{
		"none": {machine{root: files("dev/null")}, "", nil},
		"by nvidia-smi": {
			machine{root: files("dev/nvidia0", "dev/nvidia1", "dev/nvidiactl", "dev/nvidia-uvm"), list: prints(twoGPUs)},
			NVIDIA,
			[]string{"0", "1"},
		},
		"parts of a GPU instead of itself": {
			machine{root: files("dev/nvidia0"), list: prints(dividedGPU)},
			NVIDIA,
			[]string{"MIG-6d0aa68a-72d4-5bb0-9b8c-4e3f0e1e7d90", "MIG-f3a1bd2e-02f4-5d7c-8a11-2b1f6a5d3c44", "1"},
		},
		"a container without nvidia-smi": {machine{root: files("dev/nvidia3", "dev/nvidiactl")}, NVIDIA, []string{"0"}},
		"AMD":                            {machine{root: files(append(nodes, "dev/dri/renderD128", "dev/dri/renderD129")...)}, AMD, []string{"0", "1"}},
		"a container with one of AMD's":  {machine{root: files(append(nodes, "dev/dri/renderD129")...)}, AMD, []string{"0"}},
		"as the environment says": {
			machine{root: files("dev/nvidia0"), getenv: environment(map[string]string{"CUDA_VISIBLE_DEVICES": "2, 3"})},
			NVIDIA,
			[]string{"2", "3"},
		},
		"hidden by the environment": {
			machine{root: files("dev/nvidia0"), getenv: environment(map[string]string{"CUDA_VISIBLE_DEVICES": ""})},
			"", nil,
		},
		"AMD's by the environment": {
			machine{root: files(), getenv: environment(map[string]string{"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f3e8d7a66"})},
			AMD,
			[]string{"GPU-4b2c1a9f3e8d7a66"},
		},
	} {
		if test.m.getenv == nil {
			test.m.getenv = environment(nil)
		}
		if test.m.list == nil {
			test.m.list = notInstalled
		}
		found, err := test.m.find(t.Context())
		if err != nil || found.Vendor != test.vendor || !slices.Equal(found.IDs, test.ids) {
			t.Errorf("%s: got %v, %v; want %s %v", name, found, err, test.vendor, test.ids)
		}
	}
}

func TestGPUsThatCannotBeListedAreAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("driver and library have different versions")
	m := machine{root: files("dev/nvidia0"), getenv: environment(nil), list: func(context.Context) (string, error) { return "", broken }}
	if found, err := m.find(t.Context()); !errors.Is(err, broken) || len(found.IDs) > 0 {
		t.Errorf("got %v, %v", found, err)
	}
	m.getenv = environment(map[string]string{"CUDA_VISIBLE_DEVICES": "0;1"})
	if _, err := m.find(t.Context()); err == nil || err.Error() != `CUDA_VISIBLE_DEVICES of the worker's environment: "0;1" is neither an index nor a UUID` {
		t.Errorf("got %v", err)
	}
}

func TestAListNamesGPUs(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]Devices{
		"0":                 {Vendor: NVIDIA, IDs: []string{"0"}},
		"2,0":               {Vendor: NVIDIA, IDs: []string{"2", "0"}},
		"amd:0,1":           {Vendor: AMD, IDs: []string{"0", "1"}},
		"nvidia:MIG-6d0a,1": {Vendor: NVIDIA, IDs: []string{"MIG-6d0a", "1"}},
		"none":              {},
	} {
		if got, err := Find(t.Context(), list); err != nil || got.Vendor != want.Vendor || !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("%s: got %v, %v; want %v", list, got, err, want)
		}
	}
}

func TestABadListIsAnError(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"0,0":     "duplicate 0",
		"0,":      "must be auto, none, or indexes or UUIDs with commas between them, such as 0,1",
		"0 1":     `"0 1" is neither an index nor a UUID`,
		"amd":     `"amd" is neither an index nor a UUID`,
		"all":     `"all" is neither an index nor a UUID`,
		"intel:0": `unknown vendor "intel": must be nvidia or amd`,
		"amd:":    "must be auto, none, or indexes or UUIDs with commas between them, such as 0,1",
	} {
		if err := Check(list); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", list, err, want)
		}
	}
}

func TestProgramsSeeTheirGPUsOnly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		vendor Vendor
		want   map[string]string
	}{
		{NVIDIA, map[string]string{"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}},
		{AMD, map[string]string{"ROCR_VISIBLE_DEVICES": "1,3"}},
	} {
		got := Devices{Vendor: test.vendor}.Environ([]string{"1", "3"})
		if len(got) != len(test.want) {
			t.Errorf("%s: got %v", test.vendor, got)
		}
		for name, value := range test.want {
			if got[name] != value {
				t.Errorf("%s: got %s=%s, want %s", test.vendor, name, got[name], value)
			}
		}
	}
}
