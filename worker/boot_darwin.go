package worker

import "golang.org/x/sys/unix"

// bootID returns a random number that the system chose when it started, or "".
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
