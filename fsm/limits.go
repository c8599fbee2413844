package fsm

// The greatest lengths that an operation may carry, in bytes. They are far above
// what the coordinator lets in, and belong to the log's format: whoever changes
// one changes what replicas accept. Without them, an entry could build a state
// whose snapshot cannot be read back.
const (
	maxResult = 4 << 10 // inline result of a task
	maxText   = 8 << 10 // errors, reasons, names, keys
	maxBlob   = 8 << 20 // header of a job, tasks of a chunk: half a snapshot frame
	sha256Len = 32

	maxCheckpoint     = 64 << 10  // of one, inline
	maxCheckpointFile = 512       // path of one that is in a file
	maxCheckpoints    = 256 << 20 // of all together, on each replica

	maxNotifications = 10_000 // that wait to be told; 40 bytes each
)

// tooLong reports whether one of the texts is above maxText.
func tooLong(texts ...string) bool {
	for _, t := range texts {
		if len(t) > maxText {
			return true
		}
	}
	return false
}
