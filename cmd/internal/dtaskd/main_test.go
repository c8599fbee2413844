package dtaskd

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dtask/dtask/internal/program"
)

// Users read the errors about flags: nothing of strconv or pflag may be in them.
func TestEveryFlagReportsAnInvalidValueInPlainWords(t *testing.T) {
	t.Parallel()
	flags := command(nil, io.Discard, io.Discard).Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "string" || f.Value.Type() == "stringSlice" || f.Name == "help" || f.Name == "version" {
			return
		}
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"--" + f.Name + "=nonsense"}, io.Discard, &stderr)
		got, want := stderr.String(), "dtaskd: invalid --"+f.Name+` "nonsense": must be `
		if code != program.ExitUsage || !strings.HasPrefix(got, want) || strings.TrimPrefix(got, want) == "\n" || strings.Contains(got, "strconv") {
			t.Errorf("code %d, %q, want %q", code, got, want)
		}
	})
}

func TestInvalidSettingsAreUsageErrors(t *testing.T) {
	t.Parallel()
	replica := []string{"--id", "n1", "--data-dir", "d"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "--id is required"},
		{[]string{"--id", "n1"}, "--data-dir is required"},
		{[]string{"--id", "n 1", "--data-dir", "d"}, `invalid --id "n 1": must be`},
		{[]string{"--dev", "--peers", "n1=h:1"}, "--dev and --peers are mutually exclusive"},
		{[]string{"--dev", "--slots", "0", "--log-store", "tape"}, "invalid --slots 0: must be 1 to 65535"},
		{[]string{"--dev", "--slots", "70000"}, "invalid --slots 70000: must be 1 to 65535"},
		{append(replica, "--slots", "1"), "--slots requires --dev"},
		{append(replica, "--peers", "n1"), `invalid --peers entry "n1": must be ID=HOST:PORT`},
		{append(replica, "--peers", "n1=h:1,n1=h:2"), `invalid --peers: duplicate "n1=h:2"`},
		{append(replica, "--peers", "n2=127.0.0.1:1"), "invalid --peers: must include this replica, n1"},
		{append(replica, "--listen", "0.0.0.0:1"), `invalid --listen "0.0.0.0:1": must be a loopback address`},
		{append(replica, "--history-age", "5w"), `invalid --history-age "5w": must be a duration`},
		{append(replica, "--history-jobs", "0"), "invalid --history-jobs 0"},
		{append(replica, "--task-timeout", "0"), "invalid --task-timeout 0s"},
		{append(replica, "--submit-burst", "5"), "--submit-burst requires --submit-rate"},
		{append(replica, "--log-store", "tape"), `invalid --log-store: unknown log store "tape"`},
		{append(replica, "--webhook-allow", "10.1.2.3"), `invalid --webhook-allow "10.1.2.3": must be a CIDR such as 10.1.0.0/16`},
		{append(replica, "--webhook-allow", "10.0.0.0/8,hooks.test"), `invalid --webhook-allow "hooks.test": must be a CIDR`},
		{append(replica, "--webhook-allow", "10.0.0.0/8", "--webhook-allow", "10.1.2.3/16"), `invalid --webhook-allow "10.1.2.3/16": has address bits beyond the prefix; use 10.1.0.0/16 or 10.1.2.3/32`},
		{append(replica, "--webhook-allow", "::ffff:10.0.0.0/104"), `invalid --webhook-allow "::ffff:10.0.0.0/104": write the IPv4 range`},
		{append(replica, "--audit", "maybe"), `invalid --audit "maybe": must be off, best-effort or required`},
		{append(replica, "--audit-file-bytes", "1024"), "invalid --audit-file-bytes 1024: must be at least 65536"},
		{append(replica, "--audit-files", "1"), "invalid --audit-files 1: must be 2 or more"},
		{append(replica, "--log-level", "loud"), `invalid --log-level "loud": must be`},
		{append(replica, "more"), `unexpected argument "more"`},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), c.args, io.Discard, &stderr); code != program.ExitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: code %d, %q, want %q", c.args, code, stderr.String(), c.want)
		}
	}
}

func TestWebhookRangesAreRepeatableAndReported(t *testing.T) {
	t.Parallel()
	got, err := parseRanges([]string{"10.1.0.0/16", " fd00::/64", "192.168.7.9/32", "0.0.0.0/0"})
	if want := "[10.1.0.0/16 fd00::/64 192.168.7.9/32 0.0.0.0/0]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	_, err = parseRanges([]string{"10.1.0.0/33", "10.1.0.0/16", "x"})
	if err == nil || strings.Count(err.Error(), "invalid --webhook-allow") != 2 {
		t.Errorf("got %v, want both invalid values", err)
	}
}

func TestCommandLinesAreQuotedForAShell(t *testing.T) {
	t.Parallel()
	if got, want := commandLine([]string{"--id", "n1", "--data-dir", "it's here", ""}), `dtaskd --id n1 --data-dir 'it'\''s here' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
