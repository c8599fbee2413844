package mount

import "github.com/dtask/dtask/test/chaos/faultfs/disk"

// A Request is one line to the process that serves a disk.
type Request struct {
	Do     string `json:"do"`
	Rule   Rule   `json:"rule"`
	Path   string `json:"path,omitempty"`
	Number int64  `json:"number,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
	Hide   bool   `json:"hide,omitempty"`
}

// The requests.
const (
	AddRule    = "add rule"    // Rule; the answer has its id
	RemoveRule = "remove rule" // Rule.ID; 0 for all
	FindRule   = "find rule"   // Rule.ID, with its current counts
	SetFree    = "set free"    // Number bytes of free space; Hide: statfs reports plenty
	PowerOff   = "power off"   // all operations fail
	PowerOn    = "power on"    // Seed chooses what survived
	Count      = "count"       // of operations so far; Number is the used space
	Files      = "files"       // their paths
	Export     = "export"      // all files to the directory Path
	Save       = "save"        // all files, under the name Path
	Load       = "load"        // the files saved under the name Path
	Record     = "record"      // Number 1 starts recording, 0 stops it
	MarkPoint  = "mark"        // Path is the point that the program had reached
	History    = "history"     // to the file Path
	Flip       = "flip"        // bit Number of the file Path; if negative, Seed chooses
	Tear       = "tear"        // the last write of the file Path at or after Number; Seed chooses where
)

// An Answer is one line back, in the order of the requests.
type Answer struct {
	Error  string     `json:"error,omitempty"`
	Rule   Rule       `json:"rule"`
	Number int64      `json:"number,omitempty"`
	Names  []string   `json:"names,omitempty"`
	Counts map[Op]int `json:"counts,omitempty"`
	Loss   disk.Loss  `json:"loss"`
}
