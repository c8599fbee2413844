package auth

import "fmt"

// maxClusterName is how many characters the name of a cluster can have.
const maxClusterName = 63

// CheckClusterName checks the name of a cluster. It can be that of a context and of a label
// of a metric, and the part before the colon of CELL:JOB/TASK: nothing that is written there
// may have a colon or a slash.
func CheckClusterName(name string) error {
	valid := name != "" && len(name) <= maxClusterName && name[0] != '-' && name[len(name)-1] != '-'
	for i := range len(name) {
		c := name[i]
		valid = valid && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-')
	}
	if !valid {
		return fmt.Errorf("invalid name %.80q of the cluster: must be 1–%d letters, digits and -, neither beginning nor ending with -", name, maxClusterName)
	}
	return nil
}
