package show

import (
	"encoding/json"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Attempt is an attempt that failed or was lost, in JSON.
type Attempt struct {
	Attempt   uint32  `json:"attempt"`
	Worker    string  `json:"worker"`
	StartedAt *string `json:"started_at"`
	EndedAt   *string `json:"ended_at"`
	Error     string  `json:"error"`
}

// TaskWithHistory is what `status JOB/TASK` prints.
type TaskWithHistory struct {
	Task

	Job     string    `json:"job"`
	Type    string    `json:"type"`
	History []Attempt `json:"history"`
}

// Letter is a dead letter in JSON.
type Letter struct {
	ID       string  `json:"id"` // 42/fetch, as commands take it
	Job      string  `json:"job"`
	JobName  string  `json:"job_name"`
	Task     string  `json:"task"`
	Type     string  `json:"type"`
	Owner    string  `json:"owner"`
	DiedAt   *string `json:"died_at"`
	Attempts uint32  `json:"attempts"`
	Error    string  `json:"error"`
}

// Letters is what `dlq list` prints.
type Letters struct {
	Letters []Letter `json:"dead_letters"`
}

// LetterWithHistory is what `dlq show` prints. Payload is the JSON value that
// was submitted, or a string if it is something else, or null.
type LetterWithHistory struct {
	Letter

	Payload json.RawMessage `json:"payload"`
	History []Attempt       `json:"history"`
}

// TaskWithHistoryOf makes the document of one task of a job.
func TaskWithHistoryOf(job string, t *dtaskv1.Task) TaskWithHistory {
	return TaskWithHistory{Task: TaskOf(t), Job: job, Type: t.GetType(), History: attemptsOf(t.GetHistory())}
}

// LetterID is how commands name a dead letter: 42/fetch.
func LetterID(l *dtaskv1.DeadLetter) string { return l.GetJob() + "/" + l.GetTask() }

// LettersOf makes the document of a list of dead letters.
func LettersOf(letters []*dtaskv1.DeadLetter) Letters {
	out := Letters{Letters: make([]Letter, 0, len(letters))}
	for _, l := range letters {
		out.Letters = append(out.Letters, letterOf(l))
	}
	return out
}

// LetterWithHistoryOf makes the document of one dead letter.
func LetterWithHistoryOf(l *dtaskv1.DeadLetter) LetterWithHistory {
	return LetterWithHistory{Letter: letterOf(l), Payload: value(l.GetPayload()), History: attemptsOf(l.GetHistory())}
}

func letterOf(l *dtaskv1.DeadLetter) Letter {
	return Letter{
		ID: LetterID(l), Job: l.GetJob(), JobName: l.GetJobName(), Task: l.GetTask(), Type: l.GetType(), Owner: l.GetOwner(),
		DiedAt: stamp(l.GetDiedAt()), Attempts: l.GetAttempts(), Error: l.GetError(),
	}
}

func attemptsOf(history []*dtaskv1.AttemptRecord) []Attempt {
	out := make([]Attempt, 0, len(history))
	for _, a := range history {
		out = append(out, Attempt{
			Attempt: a.GetNumber(), Worker: a.GetWorker(), StartedAt: stamp(a.GetStartedAt()), EndedAt: stamp(a.GetEndedAt()), Error: a.GetError(),
		})
	}
	return out
}
