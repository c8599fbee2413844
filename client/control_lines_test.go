package client

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"pgregory.net/rapid"

	"github.com/dtask/dtask/internal/controlline"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestControlLinesAreHiddenHoweverTheOutputIsCut(t *testing.T) {
	t.Parallel()
	line := rapid.SampledFrom([]string{
		"text\n", "\n", "::progress 0.5 half\n", "::progress 7\n", "::checkpoint\r\n", "::checkpoints\n", ":\n", "x ::checkpoint\n",
		"::progress 0.1 " + strings.Repeat("x", controlline.MaxLine) + "\n", "::progress " + strings.Repeat("9", controlline.MaxLine) + "\n",
	})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(line, 0, 6).Draw(t, "lines")
		text := strings.Join(lines, "")
		if rapid.Bool().Draw(t, "open") {
			text = strings.TrimSuffix(text, "\n")
		}
		var want strings.Builder
		for l := range strings.Lines(text) {
			if !controlline.Is([]byte(l)) {
				want.WriteString(l)
			}
		}
		var got bytes.Buffer
		f := controlFilter{pass: func(p []byte) error { got.Write(p); return nil }}
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if err := f.add(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Fatalf("got %.200q, want %.200q", got.String(), want.String())
		}
	})
}

func TestLogsHideControlLinesUnlessTheyAreRequested(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{logs: func(s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
		return piecesOf(s, "one\n::progress 0.5\ntwo\n::check", "!::checkpoint\n", "point\nthree\n::pro", "gap 9", "x\nfour\n::checkpoint")
	}})
	const gap = "\n[dtask: 9 bytes omitted]\n"
	for name, x := range map[string]struct {
		r    LogsRequest
		want string
	}{
		"hidden":         {want: "one\ntwo\n!::checkpoint\nthree\n::pro" + gap + "x\nfour\n"},
		"shown":          {r: LogsRequest{ControlLines: true}, want: "one\n::progress 0.5\ntwo\n::check!::checkpoint\npoint\nthree\n::pro" + gap + "x\nfour\n::checkpoint"},
		"the last lines": {r: LogsRequest{Tail: 2}, want: "x\nfour\n"},
		"since, within":  {r: LogsRequest{Since: time.UnixMilli(1001)}, want: "!::checkpoint\npoint\nthree\n::pro" + gap + "x\nfour\n"},
	} {
		var b strings.Builder
		x.r.Job, x.r.Task, x.r.Attempt, x.r.Stdout, x.r.Stderr = "1", "a", 1, &b, &b
		if _, err := c.Logs(t.Context(), x.r); err != nil || b.String() != x.want {
			t.Errorf("%s: got %q, %v, want %q", name, b.String(), err, x.want)
		}
	}
}
