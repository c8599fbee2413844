package raftnode

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/dtask/dtask/internal/loglimit"
)

func TestRaftsFormattedValuesAreLoggedFormatted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := &hclogAdapter{Logger: hclog.NewNullLogger(), log: slog.New(slog.NewTextHandler(&out, nil)), limit: &loglimit.Limiter{}}
	h.Info("updating configuration", "server-id", "n1", "servers", hclog.Fmt("%+v", []string{"n1", "n2"}))
	for _, want := range []string{"server_id=n1", `servers="[n1 n2]"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
}
