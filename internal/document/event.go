package document

// Event is the body of a webhook and the input of a dead-letter command.
type Event struct {
	Type      string `json:"type"`      // job.completed, job.failed, job.cancelled or dead_letter
	Timestamp string `json:"timestamp"` // when the event happened
	Data      any    `json:"data"`      // a Job, or a DeadLetterWithHistory
}
