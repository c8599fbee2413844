package process

import "time"

// The worker and its supervisor exchange JSON values over two pipes. Both ends
// are the same binary, so the format has no versions. Strings of the program
// are sent as bytes, because they need not be UTF-8.

// An order is sent by the worker: one start, then at most one stop. The end of
// the stream is an order, too: kill the tree immediately.
type order struct {
	Start *startOrder `json:"start,omitempty"`
	Stop  *stopOrder  `json:"stop,omitempty"`
}

type startOrder struct {
	Path []byte   `json:"path"`
	Argv [][]byte `json:"argv"`
	Env  [][]byte `json:"env"`
	Dir  []byte   `json:"dir"`

	StartBefore time.Duration `json:"start_before,omitempty"`
}

type stopOrder struct {
	Grace time.Duration `json:"grace"` // between SIGTERM and SIGKILL
}

// A report is sent by the supervisor: an error or a start failure only, or a
// start and then, when the tree is gone, an exit.
type report struct {
	Started      bool          `json:"started,omitempty"`
	StartFailure *startFailure `json:"start_failure,omitempty"`
	Error        string        `json:"error,omitempty"` // the supervisor cannot do its work
	Exit         *exitReport   `json:"exit,omitempty"`
}

type startFailure struct {
	Errno int    `json:"errno"` // 0 if unknown
	Text  string `json:"text"`

	TooLate bool `json:"too_late,omitempty"`
}

type exitReport struct {
	Exit    Exit `json:"exit"`
	Stopped bool `json:"stopped"` // the stop order arrived while the program ran
}

func toBytes(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}
