package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An overflow has what an attempt wrote beyond its share of the segments, in files of
// its own: parts of partBytes, numbered from 0. The first and the last two are kept, so
// that at least partBytes of the end are there.
type overflow struct {
	prefix string // of the paths of the parts
	part   int    // the last one
	size   int64  // of the last one
	file   *os.File
	total  int64 // bytes of all parts that are kept
}

// partBytes is the size from which on another part is begun.
const partBytes = 1 << 20

const partSuffix = ".part"

// overflowPrefix is the path of an attempt's parts without their numbers.
func overflowPrefix(dir string, a Attempt) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d-%d.", a.Job, a.Index, a.Attempt))
}

func partPath(prefix string, part int) string { return fmt.Sprintf("%s%d%s", prefix, part, partSuffix) }

// attemptOfPart returns the attempt and the number in the name of a part.
func attemptOfPart(name string) (a Attempt, part int, ok bool) {
	text, ok := strings.CutSuffix(name, partSuffix)
	if !ok {
		return a, 0, false
	}
	_, err := fmt.Sscanf(text, "%d-%d-%d.%d", &a.Job, &a.Index, &a.Attempt, &part)
	return a, part, err == nil && filepath.Base(partPath(overflowPrefix("", a), part)) == name
}

// append writes a record, and begins another part before that if the last one is full.
func (o *overflow) append(encoded []byte) error {
	if o.file != nil && o.size >= partBytes {
		if err := o.next(); err != nil {
			return err
		}
	}
	if o.file == nil {
		file, err := os.OpenFile(partPath(o.prefix, o.part), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // below the work directory
		if err != nil {
			return fmt.Errorf("creating a file of logs: %w", err)
		}
		o.file, o.size = file, 0
	}
	if _, err := o.file.WriteAt(encoded, o.size); err != nil {
		return fmt.Errorf("writing logs: %w", err)
	}
	o.size += int64(len(encoded))
	o.total += int64(len(encoded))
	return nil
}

// next ends the last part, and removes the one before it unless it is the first.
func (o *overflow) next() error {
	if err := o.file.Close(); err != nil {
		return fmt.Errorf("writing logs: %w", err)
	}
	if o.part > 1 {
		path := partPath(o.prefix, o.part-1)
		if info, err := os.Stat(path); err == nil && os.Remove(path) == nil {
			o.total -= info.Size()
		}
	}
	o.file, o.part = nil, o.part+1
	return nil
}

func (o *overflow) close() error {
	if o.file == nil {
		return nil
	}
	file := o.file
	o.file = nil
	return file.Close() //nolint:wrapcheck // nothing is done about it
}

// removeParts removes all parts of an overflow whose last part has this number. What
// cannot be removed is found when the store is opened again.
func removeParts(prefix string, last int) {
	for _, part := range keptParts(last) {
		_ = os.Remove(partPath(prefix, part))
	}
}

// keptParts returns the numbers of the parts that an overflow keeps.
func keptParts(last int) []int {
	parts := []int{0}
	for part := max(1, last-1); part <= last; part++ {
		parts = append(parts, part)
	}
	return parts
}
