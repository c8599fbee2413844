package zoneinfo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/nearest"
)

// UnknownError is returned by [Load] when there is no zone with the name.
type UnknownError struct {
	Name       string
	Suggestion string // the zone that was probably meant; empty = none is near
}

// Error returns what is wrong and what to do, separated by a semicolon.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown time zone %q; %s", e.Name, e.Advice())
}

// Advice returns what the user can do.
func (e *UnknownError) Advice() string {
	if e.Suggestion != "" {
		return fmt.Sprintf("did you mean %q?", e.Suggestion)
	}
	return "use a name such as Europe/Berlin, America/New_York or UTC"
}

// abbreviations are not zones: each of them is used by several, and it changes with
// daylight saving. The largest place that uses one is suggested.
var abbreviations = map[string]string{
	"AEDT": "Australia/Sydney", "AEST": "Australia/Sydney", "BRT": "America/Sao_Paulo", "BST": "Europe/London", "CDT": "America/Chicago",
	"CEST": "Europe/Berlin", "CST": "America/Chicago", "EDT": "America/New_York", "EEST": "Europe/Athens", "IST": "Asia/Kolkata",
	"JST": "Asia/Tokyo", "KST": "Asia/Seoul", "MDT": "America/Denver", "MSK": "Europe/Moscow", "NZDT": "Pacific/Auckland",
	"NZST": "Pacific/Auckland", "PDT": "America/Los_Angeles", "PST": "America/Los_Angeles", "SGT": "Asia/Singapore", "Z": "UTC",
}

// suggest returns the zone that was probably meant: one that differs in case only, the
// first one of a city, the one of an abbreviation, or the nearest by spelling.
func suggest(name string) string {
	names := unpacked().names
	plain := strings.ReplaceAll(strings.TrimSpace(name), " ", "_")
	if plain == "" {
		return ""
	}
	city := ""
	for _, known := range names {
		if strings.EqualFold(known, plain) {
			return known
		}
		if city == "" && strings.EqualFold(lastPart(known), plain) {
			city = known
		}
	}
	if city != "" {
		return city
	}
	if zone, ok := abbreviations[strings.ToUpper(plain)]; ok {
		return zone
	}
	if len(plain) <= len("AEST") || strings.ContainsAny(plain, "+0123456789") {
		return "" // an abbreviation or an offset: those are near to each other, and mean different times
	}
	return nearest.Name(plain, slices.Values(names))
}

// lastPart returns what follows the last slash of a name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
