package history

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
)

// imported is a running history without a replica.
func imported(t *testing.T) *History {
	t.Helper()
	h, err := Open(Config{Path: filepath.Join(t.TempDir(), "history.db"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestANewHistoryIsImported(t *testing.T) {
	t.Parallel()
	l := filled(t, 300)
	source := l.replica(Config{}).apply().sync()
	h := imported(t)
	if err := h.Import(t.Context(), source, l.index()); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Stats(), source.Stats(); got.Jobs != want.Jobs || got.Jobs == 0 || got.Incomplete || got.CompleteTo != l.index() {
		t.Errorf("got %+v, want the jobs of %+v", got, want)
	}
	if err := h.Import(t.Context(), source, l.index()); err == nil {
		t.Error("a history was imported twice")
	}
}

// A backup that turns out to be damaged, and a source that lacks jobs, must not look like a
// complete history.
func TestAFailedImportIsAnError(t *testing.T) {
	t.Parallel()
	l := filled(t, 50)
	source := l.replica(Config{}).apply().sync()
	damage := errors.New("damaged")
	for name, s := range map[string]Source{
		"fails at its end": failingSource{source, damage}, "lacks jobs": incompleteSource{source},
	} {
		h := imported(t)
		if err := h.Import(t.Context(), s, l.index()); err == nil || name == "fails at its end" && !errors.Is(err, damage) {
			t.Errorf("%s: got %v", name, err)
		}
		if !h.Incomplete() {
			t.Errorf("%s: the history looks complete", name)
		}
	}
}

// failingSource sends everything and then fails.
type failingSource struct {
	Source

	err error
}

// Fetch implements Source.
func (s failingSource) Fetch(ctx context.Context, after Position, to uint64, take func(c Chunk, complete bool) error) (bool, error) {
	if _, err := s.Source.Fetch(ctx, after, to, take); err != nil {
		return false, err
	}
	return false, s.err
}
