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

// encryptTo is the parameter of a target with a public key of age; it can be repeated.
const encryptTo = "encrypt-to"

// errTarget is returned for a target that no coordinator can write to.
var errTarget = errors.New("must be file:// and the absolute path of a directory, such as file:///mnt/backups")

// A Target is where a coordinator writes backups, and who can read them.
type Target struct {
	Dir string     // absolute path
	To  Recipients // empty: the backups are not encrypted
}

// ParseTarget returns what a file:// URL names: a directory and, in parameters encrypt-to,
// public keys of those who can read the backups. The error does not have the keys.
func ParseTarget(target string) (t Target, err error) {
	if len(target) > maxTarget {
		return t, fmt.Errorf("must have at most %d bytes, with all public keys", maxTarget)
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "file" || u.Host != "" || u.User != nil || u.Fragment != "" || u.Opaque != "" || u.ForceQuery ||
		!filepath.IsAbs(u.Path) || strings.ContainsRune(u.Path, 0) {
		return t, errTarget
	}
	parameters, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return t, errTarget
	}
	for name := range parameters {
		if name != encryptTo {
			return t, fmt.Errorf("unknown parameter %.40q: only %s=PUBLIC-KEY is possible", name, encryptTo)
		}
	}
	if t.To, err = ParseRecipients(parameters[encryptTo]); err != nil {
		return t, fmt.Errorf("invalid %s: %w", encryptTo, err)
	}
	t.Dir = filepath.Clean(u.Path)
	return t, nil
}

// TargetTo returns a target with the public keys of those who can read the backups, which
// are not checked.
func TargetTo(target string, keys []string) string {
	for _, key := range keys {
		separator := "?"
		if strings.Contains(target, "?") {
			separator = "&"
		}
		target += separator + encryptTo + "=" + url.QueryEscape(key)
	}
	return target
}
