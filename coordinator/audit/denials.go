package audit

import (
	"cmp"
	"maps"
	"net"
	"slices"

	"github.com/dtask/dtask/internal/audit"
)

const (
	// maxDenials is how many denials of one caller have a line of their own in a second.
	maxDenials = 10
	// maxCallers bounds the callers that are counted separately in a second; the others are
	// counted as one.
	maxCallers = 1000
)

// denials counts the denials of each caller in one second.
type denials map[caller]*denied

// caller is who was refused. One without credentials is known by its address: its port
// changes.
type caller struct {
	identity uint64
	who, via string
	host     string
}

// denied is what a caller was refused in one second.
type denied struct {
	count uint64
	last  audit.Record // beyond maxDenials
}

// others is the caller that stands for those beyond maxCallers.
var others = caller{who: "(others)"}

func callerOf(r *audit.Record) caller {
	c := caller{identity: r.Identity, who: r.Who, via: r.Via}
	if r.Who == "" {
		c.host = r.Remote
		if host, _, err := net.SplitHostPort(r.Remote); err == nil {
			c.host = host
		}
	}
	return c
}

// admit counts a denial, and reports whether it has a line of its own.
func (d denials) admit(r audit.Record) bool {
	key := callerOf(&r)
	if d[key] == nil && len(d) >= maxCallers {
		key = others
	}
	x := d[key]
	if x == nil {
		x = new(denied)
		d[key] = x
	}
	x.count++
	x.last = r
	return x.count <= maxDenials
}

// end ends the second, and returns a line for each caller with more denials than have a
// line of their own.
func (d denials) end(at string, index uint64) []audit.Record {
	var list []audit.Record
	for key, x := range d {
		if x.count <= maxDenials {
			continue
		}
		r := x.last
		r.At, r.Index, r.Count = at, index, x.count-maxDenials
		if key == others {
			r.Who, r.Identity, r.Via, r.Remote = others.who, 0, "", ""
		}
		list = append(list, r)
	}
	maps.DeleteFunc(d, func(caller, *denied) bool { return true })
	slices.SortFunc(list, func(a, b audit.Record) int {
		return cmp.Or(cmp.Compare(a.Who, b.Who), cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Remote, b.Remote))
	})
	return list
}
