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
