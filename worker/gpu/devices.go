package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Resource is the name of the resource that tasks request.
const Resource = "gpu"

// maxDevices bounds the GPUs of one worker.
const maxDevices = 1024

// A Vendor is the maker of GPUs, which decides the variables that restrict a program to some
// of them.
type Vendor string

// The vendors whose GPUs can be assigned.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// variables are the names of those that the vendors' libraries read. HIP also reads
// CUDA_VISIBLE_DEVICES, and counts in it the GPUs that ROCR_VISIBLE_DEVICES has left: only one
// of the two may be set.
var variables = map[Vendor]string{NVIDIA: "CUDA_VISIBLE_DEVICES", AMD: "ROCR_VISIBLE_DEVICES"}

// Devices are the GPUs that a worker offers, of one vendor. The zero value has none.
type Devices struct {
	Vendor Vendor
	// IDs name them as the vendor's variable does: an index from 0, or a UUID such as
	// GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 or MIG-….
	IDs []string
}

// Amount returns the number of GPUs in thousandths, as resources are counted.
func (d Devices) Amount() int64 { return int64(len(d.IDs)) * whole }

// Environ returns the variables that restrict a program to some of the GPUs, by name.
func (d Devices) Environ(ids []string) map[string]string {
	env := map[string]string{variables[d.Vendor]: strings.Join(ids, ",")}
	if d.Vendor == NVIDIA {
		// Otherwise the indexes of CUDA begin with the fastest GPU, those of nvidia-smi do not.
		env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
	}
	return env
}

// parse reads a list such as 0,1 or amd:0,1, or UUIDs. Without a vendor they are NVIDIA's.
func parse(list string) (Devices, error) {
	d := Devices{Vendor: NVIDIA}
	if vendor, rest, found := strings.Cut(list, ":"); found {
		d.Vendor, list = Vendor(vendor), rest
	}
	if variables[d.Vendor] == "" {
		return Devices{}, fmt.Errorf("unknown vendor %q: must be nvidia or amd", d.Vendor)
	}
	d.IDs = strings.Split(list, ",")
	if len(d.IDs) > maxDevices {
		return Devices{}, fmt.Errorf("%d GPUs: at most %d", len(d.IDs), maxDevices)
	}
	for i, id := range d.IDs {
		switch {
		case id == "":
			return Devices{}, errors.New("must be auto, none, or indexes or UUIDs with commas between them, such as 0,1")
		case strings.Trim(id, idCharacters) != "" || !strings.ContainsAny(id, "0123456789"):
			return Devices{}, fmt.Errorf("%q is neither an index nor a UUID", id)
		case slices.Contains(d.IDs[:i], id):
			return Devices{}, fmt.Errorf("duplicate %s", id)
		}
	}
	return d, nil
}

// idCharacters are those of indexes and UUIDs. Older names of parts of a GPU have slashes.
const idCharacters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-/_."
