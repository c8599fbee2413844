package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// DiskUsage is how much space the coordinators use, in bytes.
type DiskUsage struct {
	Replicas []ReplicaUsage `json:"replicas"`
}

// ReplicaUsage is how much space a coordinator uses, in bytes. Without an answer, all but
// the first three fields are empty.
type ReplicaUsage struct {
	ID        string            `json:"id"` // empty: unknown
	Address   string            `json:"address"`
	Error     *string           `json:"error"` // why it did not answer; null: it did
	Applied   uint64            `json:"applied"`
	Files     map[string]uint64 `json:"files"` // by part of the data directory
	State     map[string]uint64 `json:"state"` // by kind of data, as in a snapshot
	HeapBytes uint64            `json:"heap_bytes"`
	DiskFree  uint64            `json:"disk_free_bytes"` // with disk_bytes 0: unknown
	Disk      uint64            `json:"disk_bytes"`
}

// NewReplicaUsage converts the answer of a coordinator, or says why it did not answer.
func NewReplicaUsage(id, address string, u *dtaskv1.DiskUsageResponse, err error) ReplicaUsage {
	doc := ReplicaUsage{
		ID: id, Address: address, Applied: u.GetAppliedIndex(), Files: sizes(u.GetFiles()), State: sizes(u.GetState()),
		HeapBytes: u.GetHeapBytes(), DiskFree: u.GetDiskFreeBytes(), Disk: u.GetDiskBytes(),
	}
	if err != nil {
		doc.Error = new(err.Error())
	}
	return doc
}

func sizes(list []*dtaskv1.Size) map[string]uint64 {
	byKind := make(map[string]uint64, len(list))
	for _, s := range list {
		byKind[s.GetKind()] = s.GetBytes()
	}
	return byKind
}
