package logstore

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// contentOf returns all files of a directory.
func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestAReaderReadsWhatIsStoredAndChangesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Bolt, WAL} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s, err := Open(Config{
				Dir: dir, Kind: kind, Contents: &Contents{}, HangTimeout: testTimeout, Fatal: func(err error) { t.Error(err) },
				Logger: slog.New(slog.DiscardHandler), RaftLogger: hclog.NewNullLogger(),
			})
			if err != nil {
				t.Fatal(err)
			}
			large := sized(3, 50_000)
			logs := append(entries(1, 2), large)
			logs = append(logs, entries(4, 200)...)
			for _, batch := range [][]*raft.Log{logs[:2], logs[2:100], logs[100:]} {
				if err := s.StoreLogs(batch); err != nil {
					t.Fatal(err)
				}
			}
			err = errors.Join(s.DeleteRange(1, 1), s.SetUint64(keyTerm, 7), s.SetUint64(keyVoteTerm, 6),
				s.Set(keyVoteCandidate, []byte("n2:1")), s.Close())
			if err != nil {
				t.Fatal(err)
			}
			before := contentOf(t, dir)
			r, err := OpenReader(dir)
			if err != nil {
				t.Fatal(err)
			}
			first, last := r.Bounds()
			term, voteTerm, candidate, err := r.Term()
			if err != nil || r.Kind() != kind || first != 2 || last != 203 || term != 7 || voteTerm != 6 || candidate != "n2:1" || r.Torn() {
				t.Errorf("%s, entries %d to %d, term %d, vote for %q in term %d, %v", r.Kind(), first, last, term, candidate, voteTerm, err)
			}
			for _, from := range []uint64{0, 150, 203, 204} {
				next := max(from, 2)
				err := r.Entries(from, func(log *raft.Log) error {
					if want := logs[next-1]; log.Index != next || log.Term != want.Term || log.Type != want.Type || !bytes.Equal(log.Data, want.Data) {
						t.Errorf("entry %d differs", next)
					}
					next++
					return nil
				})
				if err != nil || next != 204 {
					t.Errorf("from %d: read up to %d, %v", from, next-1, err)
				}
			}
			stop := errors.New("stop")
			if err := r.Entries(0, func(*raft.Log) error { return stop }); !errors.Is(err, stop) {
				t.Errorf("got %v", err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			after := contentOf(t, dir)
			for path, text := range after {
				if before[path] != text {
					t.Errorf("%s changed", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files, %d before", len(after), len(before))
			}
		})
	}
}

func TestAReaderOfADirectoryWithoutAStoreIsEmpty(t *testing.T) {
	t.Parallel()
	r, err := OpenReader(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, last := r.Bounds()
	term, _, candidate, err := r.Term()
	if first != 0 || last != 0 || term != 0 || candidate != "" || err != nil || r.Kind() != "" {
		t.Errorf("%d, %d, %d, %q, %v", first, last, term, candidate, err)
	}
	if err := errors.Join(r.Entries(0, nil), r.Close()); err != nil {
		t.Error(err)
	}
}
