package mount

import (
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Op is a kind of operation.
type Op string

// The operations that rules can select.
const (
	OpRead  Op = "read"
	OpWrite Op = "write" // and changes of length
	OpSync  Op = "sync"  // of files and directories
	OpNames Op = "names" // making, renaming and removing
)

// A Rule makes some operations wait or fail. Delay and Hang precede Errno.
type Rule struct {
	ID   int    `json:"id"`             // assigned when it is added
	Ops  []Op   `json:"ops"`            // none = all but reads
	Name string `json:"name,omitempty"` // pattern of path.Match for the last element of the path; "" = any
	// Times is the number of operations that it applies to; 0 = until it is removed.
	Times int           `json:"times,omitempty"`
	Delay time.Duration `json:"delay,omitempty"` // added to each operation
	Hang  bool          `json:"hang,omitempty"`  // until the rule is removed
	// Errno is the error that they return; 0 = none.
	Errno syscall.Errno `json:"errno,omitempty"`

	Fired   int `json:"fired"`   // operations that it applied to so far
	Waiting int `json:"waiting"` // operations that hang because of it

	removed chan struct{} // closed when the rule is removed
}

func (r *Rule) covers(op Op, name string) bool {
	switch {
	case len(r.Ops) == 0 && op == OpRead, len(r.Ops) > 0 && !slices.Contains(r.Ops, op), r.Times > 0 && r.Fired >= r.Times:
		return false
	case r.Name == "":
		return true
	}
	ok, err := path.Match(r.Name, name)
	return ok && err == nil
}

// rules are the active rules. Each operation passes all of them.
type rules struct {
	mu   sync.Mutex // guards all below, and the counts of the rules
	list []*Rule
	last int
	dead bool // the power is off: everything fails
	done []Rule
	seen map[Op]int
}

// add adds a rule and returns its id.
func (s *rules) add(r Rule) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	r.ID, r.Fired, r.Waiting, r.removed = s.last, 0, 0, make(chan struct{})
	s.list = append(s.list, &r)
	return r.ID
}

// remove removes a rule, or all if id is 0. Operations that hang because of it
// continue.
func (s *rules) remove(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(r *Rule) bool {
		if id != 0 && r.ID != id {
			return false
		}
		close(r.removed)
		s.done = append(s.done, *r)
		return true
	})
}

// die makes all operations fail, also hanging ones.
func (s *rules) die() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	s.remove(0)
}

// revive ends that.
func (s *rules) revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
}

// power fails while the power is off. Lookups pass no rule: the kernel retries those
// that failed.
func (s *rules) power() syscall.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return syscall.EIO
	}
	return 0
}

// find returns a rule, also one that was removed.
func (s *rules) find(id int) (Rule, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.list {
		if r.ID == id {
			return *r, true
		}
	}
	for _, r := range s.done {
		if r.ID == id {
			return r, true
		}
	}
	return Rule{}, false
}

// pass applies the rules to an operation, which may take long, and returns the error
// that it must fail with. It does not end early when the program is interrupted:
// neither does a disk.
func (s *rules) pass(op Op, name string) syscall.Errno {
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return syscall.EIO
	}
	s.seen[op]++
	var apply []*Rule
	for _, r := range s.list {
		if r.covers(op, name) {
			r.Fired++
			apply = append(apply, r)
		}
	}
	s.mu.Unlock()
	for _, r := range apply {
		s.suffer(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return syscall.EIO
	}
	for _, r := range apply {
		if r.Errno != 0 {
			return r.Errno
		}
	}
	return 0
}

// suffer waits as a rule demands.
func (s *rules) suffer(r *Rule) {
	if r.Delay == 0 && !r.Hang {
		return
	}
	s.wait(r, 1)
	defer s.wait(r, -1)
	var after <-chan time.Time
	if !r.Hang {
		timer := time.NewTimer(r.Delay)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-r.removed:
	case <-after:
	}
}

func (s *rules) wait(r *Rule, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Waiting += by
}

// counts returns the number of operations of each kind.
func (s *rules) counts() map[Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.seen)
}
