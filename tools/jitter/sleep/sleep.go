//go:build linux

// Package sleep is what tools/jitter adds to the packages that it builds: they call At
// before each of their statements. It reads the plan of a run, in which tools/jitter has
// chosen the sites that sleep, when the test binary starts. Without a plan, no site sleeps.
//
// The sleep is one of the thread. In a bubble of testing/synctest, the goroutine
// therefore counts as running, and no virtual time passes meanwhile.
package sleep

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// variable is the environment variable with the path of the plan. Processes that the
// tests start from the same binary read the plan, too.
const variable = "JITTER_PLAN"

// plan is what tools/jitter has written.
type plan struct {
	Pause time.Duration // of each sleep
	Times int32         // that each site sleeps, in each process
	Sites []int
	Log   string // path of the file that gets the site of each sleep, in a line of its own

	left []atomic.Int32 // by site: sleeps until it sleeps no more
	log  *os.File
}

var active = mustLoad(os.Getenv(variable))

// At sleeps if the plan has the site.
func At(site int) {
	if active != nil {
		active.at(site)
	}
}

func (p *plan) at(site int) {
	if site >= len(p.left) || p.left[site].Load() <= 0 || p.left[site].Add(-1) < 0 {
		return
	}
	// A single write to a file that is open for appending stays whole beside others.
	if _, err := p.log.WriteString(strconv.Itoa(site) + "\n"); err != nil {
		panic(fmt.Errorf("jitter: recording a sleep: %w", err))
	}
	rest := syscall.NsecToTimespec(int64(p.Pause))
	for syscall.Nanosleep(&rest, &rest) == syscall.EINTR { //nolint:revive // A signal ends a sleep early.
	}
}

// mustLoad reads a plan. A test binary that can't sleep as planned must not pass.
func mustLoad(path string) *plan {
	if path == "" {
		return nil
	}
	p, err := load(path)
	if err != nil {
		panic(fmt.Errorf("jitter: reading the plan in %s: %w", variable, err))
	}
	return p
}

func load(path string) (*plan, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	if err = json.Unmarshal(text, p); err != nil {
		return nil, err
	}
	for _, site := range p.Sites {
		if site >= len(p.left) {
			p.left = make([]atomic.Int32, site+1)
		}
	}
	for _, site := range p.Sites {
		p.left[site].Store(p.Times)
	}
	p.log, err = os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return p, err
}
