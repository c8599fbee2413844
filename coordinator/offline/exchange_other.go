//go:build !linux && !darwin

package offline

import "errors"

// exchange is not supported: without an atomic exchange, a crash could leave no
// directory.
func exchange(string, string) error { return errors.ErrUnsupported }
