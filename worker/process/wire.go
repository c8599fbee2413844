package process

import "time"

// The worker and its supervisor exchange gob values over a pair of sockets.
// Both ends are the same binary, so the format has no versions.

// An order is sent by the worker: a start, and before the report of that program's
// end renewals of its lease and at most one stop. What arrives later has no effect.
// The end of the stream is an order, too: kill the tree immediately, and exit.
type order struct {
	Start *startOrder
	Renew *renewOrder
	Stop  *stopOrder
}

// A startOrder is sent with three file descriptors: the program's standard
// streams.
type startOrder struct {
	Path  string
	Argv  []string
	Env   []string
	Dir   string
	Umask int
	User  *User // nil: that of the supervisor

	StartBefore time.Duration
	EndBefore   time.Duration // reading of Monotonic; 0 = no limit
}

// A renewOrder replaces EndBefore.
type renewOrder struct{ EndBefore time.Duration }

type stopOrder struct {
	Grace time.Duration // between SIGTERM and SIGKILL
}

// A report is the answer to a start order. It is sent when the program could
// not be started, or when its whole tree is gone.
type report struct {
	StartFailure *startFailure
	Error        string // the supervisor cannot do its work
	Exit         *exitReport
	// Leaving means that the supervisor ends after this report.
	Leaving bool
}

type startFailure struct {
	Errno   int // 0 if unknown
	Text    string
	TooLate bool
}

type exitReport struct {
	Exit    Exit
	Stopped bool // the stop order arrived while the program ran
	Expired bool // the program was ended because its lease had ended
}
