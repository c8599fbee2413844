// Package buildinfo says which version of dtask this is. It has no state and starts no
// goroutines.
package buildinfo

import "runtime/debug"

// version is set by the build, for all programs in the same way.
var version string

// Version returns the version of this build: the one that it was built as, else that of
// the module, the first twelve digits of the commit, or "devel" if none is known.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
