package backup

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// maxTarget is how many bytes a target may have: as many as the replicated state takes.
const maxTarget = 1 << 10

// errTarget is returned for a target that no coordinator can write to.
var errTarget = errors.New("must be file:// and the absolute path of a directory, such as file:///mnt/backups")

// ParseTarget returns the directory that a file:// URL names.
func ParseTarget(target string) (dir string, err error) {
	if len(target) > maxTarget {
		return "", fmt.Errorf("must have at most %d bytes", maxTarget)
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "file" || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" ||
		!filepath.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0) {
		return "", errTarget
	}
	return filepath.Clean(u.Path), nil
}
