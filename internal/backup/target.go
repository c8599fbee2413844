package backup

import (
	"errors"
	"net/url"
	"path/filepath"
)

// errTarget is returned for a target that no coordinator can write to.
var errTarget = errors.New("must be file:// and the absolute path of a directory, such as file:///mnt/backups")

// ParseTarget returns the directory that a file:// URL names.
func ParseTarget(target string) (dir string, err error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "file" || u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || !filepath.IsAbs(u.Path) {
		return "", errTarget
	}
	return filepath.Clean(u.Path), nil
}
