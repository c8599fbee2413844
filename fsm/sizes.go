package fsm

import "io"

// KindSize is how many bytes of a snapshot one kind of data takes.
type KindSize struct {
	Kind  string
	Bytes uint64
}

// sizeKinds are the kinds of Sizes, in their order, and the frames that each one has. They
// are part of the stable surface.
var sizeKinds = []struct {
	name   string
	frames []frameKind
}{
	{"jobs", []frameKind{frameJob}},
	{"task_definitions", []frameKind{frameChunk, frameSharedChunks}},
	{"task_records", []frameKind{frameRecords}},
	{"task_notes", []frameKind{frameNotes}},
	{"task_updates", []frameKind{frameUpdates}},
	{"checkpoints", []frameKind{frameCheckpoint}},
	{"reusable_results", []frameKind{frameResults}},
	{"idempotency_keys", []frameKind{frameKeys}},
	{"notifications", []frameKind{frameNotifications}},
	{"schedules", []frameKind{frameSchedules, frameSchedule}},
	{"queues", []frameKind{frameQueues}},
	{"named_limits", []frameKind{frameNamedLimits}},
	{"workers", []frameKind{frameWorker}},
	{"identities", []frameKind{frameTrust, frameIdentities, frameJoinTokens}},
	{"cluster", []frameKind{frameCluster, frameLevel, frameAuditHeads, frameBackups, frameClusterName, frameTotals, frameEnd}},
}

// frameSizes are bytes by kind of frame.
type frameSizes [256]uint64

// Sizes returns the size of the state as a snapshot, by kind of data. It takes as long as
// WriteSnapshot without a disk, and like it only reads.
func (s *State) Sizes() []KindSize {
	f := frameWriter{flushBytes: 256 << 10, sizes: new(frameSizes)}
	f.begin(io.Discard, snapshotMagic)
	f.state(s)
	list := make([]KindSize, 0, len(sizeKinds))
	for _, k := range sizeKinds {
		size := KindSize{Kind: k.name}
		for _, frame := range k.frames {
			size.Bytes += f.sizes[frame]
		}
		list = append(list, size)
	}
	return list
}
