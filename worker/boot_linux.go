package worker

import (
	"os"
	"strings"
)

// bootID returns a random number that the kernel chose when it started, or "".
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
