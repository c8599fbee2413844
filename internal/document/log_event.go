package document

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// LogEvent is something that the entry at a log index did.
type LogEvent struct {
	Index     uint64 `json:"index"`
	At        string `json:"at"`
	Kind      string `json:"kind"`
	Job       string `json:"job,omitempty"` // ID
	Name      string `json:"name"`          // of the job, worker or leader
	Namespace string `json:"namespace,omitempty"`
	Task      string `json:"task,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"`
	Worker    string `json:"worker,omitempty"` // ID
	Number    uint64 `json:"number,omitempty"` // term or feature level
}

// NewLogEvent converts an event.
func NewLogEvent(e *dtaskv1.Event) LogEvent {
	return LogEvent{
		Index: e.GetIndex(), At: Time(e.GetAt()), Kind: e.GetKind(), Job: e.GetJob(), Name: e.GetName(), Namespace: e.GetNamespace(),
		Task: e.GetTask(), Attempt: e.GetAttempt(), Worker: e.GetWorker(), Number: e.GetNumber(),
	}
}
