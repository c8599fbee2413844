package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A part of a log is one whose lines follow each other, wherever it begins.
func TestAnyPartOfALogIsRead(t *testing.T) {
	t.Parallel()
	dir, files, heads := written(t, 9)
	whole := filepath.Join(dir, "copy")
	var text []byte
	for _, f := range files[1:] {
		b, err := os.ReadFile(f.Path)
		must(t, err)
		text = append(text, b...)
	}
	must(t, os.WriteFile(whole, text, 0o600))
	at := 3
	must(t, ReadChain(whole, func(l Link) error {
		if l.Number != at-2 || l.Head != heads[at] || l.Before != heads[at-1] {
			t.Errorf("line %d: got %+v", at, l)
		}
		at++
		return nil
	}))
	if at != 9 {
		t.Errorf("read up to line %d", at)
	}
}

func TestAFileThatIsNoPartOfALogIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	_, files, _ := written(t, 3)
	log, err := os.ReadFile(files[0].Path)
	must(t, err)
	lines := bytes.SplitAfter(log, []byte("\n"))
	for name, test := range map[string]struct {
		text []byte
		want string
	}{
		"empty":      {nil, ":1: not a part of an audit log as it was written: the file is empty"},
		"other text": {[]byte("token 7 was revoked\n"), ":1: not a part of an audit log as it was written: the line is not a record"},
		"cut":        {log[:len(log)-1], ":3: not a part of an audit log as it was written: the line is incomplete"},
		"missing":    {append(bytes.Clone(lines[0]), lines[2]...), ":2: not a part of an audit log as it was written: line 3 of the log follows line 1"},
		"changed":    {bytes.Replace(log, []byte(`"ci"`), []byte(`"me"`), 1), ":3: not a part of an audit log as it was written: line 3 of the log does not follow line 2"},
		"long":       {bytes.Repeat([]byte("x"), MaxLine+1), ":1: not a part of an audit log as it was written: a line has more than"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		must(t, os.WriteFile(path, test.text, 0o600))
		err := ReadChain(path, func(Link) error { return nil })
		if !errors.Is(err, ErrNotLog) || !strings.HasPrefix(err.Error(), path+test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	stop := errors.New("stop")
	if err := ReadChain(files[0].Path, func(Link) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}
