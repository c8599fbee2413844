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

// What a Request may ask for.
const (
	AddRule    = "add rule"    // Rule; the answer has its id
	RemoveRule = "remove rule" // Rule.ID; 0 for all
	FindRule   = "find rule"   // Rule.ID, as it is now
	SetRoom    = "set room"    // Number bytes more; Hide: statfs says there is plenty
	PowerOff   = "power off"   // everything fails
	PowerOn    = "power on"    // Seed decides what survived
	Count      = "count"       // operations so far; Number is the room used
	Files      = "files"       // their names
	Export     = "export"      // all to the directory Path
	Save       = "save"        // all, under the name Path
	Load       = "load"        // what was saved under the name Path
	Record     = "record"      // Number 1: from now on; 0: no longer
	MarkPoint  = "mark"        // Path is what the program had reached
	History    = "history"     // to the file Path
	Flip       = "flip"        // bit Number of the file Path; below 0: one that Seed chooses
	Tear       = "tear"        // the last write of the file Path at Number or behind it; Seed says where
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
