// Package secretname has the rules about secrets that job files and workers share.
package secretname

import "strings"

const (
	// Max is the largest number of secrets of a task.
	Max = 16
	// MaxBytes is the largest size of a secret.
	MaxBytes = 64 << 10
)

// variableName replaces the characters of a secret's name that variables can't have.
var variableName = strings.NewReplacer("-", "_", ".", "_")

// Variable returns the environment variable with the path of a secret's file, such as
// DTASK_SECRET_API_KEY_FILE for api-key. Different names may have the same variable.
func Variable(name string) string {
	return "DTASK_SECRET_" + strings.ToUpper(variableName.Replace(name)) + "_FILE"
}

// IsHidden reports whether a name begins with a dot. Such files in a directory of secrets
// belong to the system that fills it, so no secret has such a name.
func IsHidden(name string) bool { return strings.HasPrefix(name, ".") }
