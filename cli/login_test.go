package cli

import (
	"strings"
	"testing"
)

func TestALoginOnATerminalAsksBeforeItReplacesAContext(t *testing.T) {
	t.Parallel()
	old := &savedContext{Name: "prod", User: "ana", ID: 3}
	for _, test := range []struct {
		old    *savedContext
		asks   bool
		answer string
		want   bool
		text   string
	}{
		{nil, true, "", true, ""},
		{old, false, "", true, ""},
		{old, true, "y\n", true, "context prod is logged in as ana, ID 3; --context NAME makes another one"},
		{old, true, "\n", false, "nothing was changed"},
	} {
		a, _, stderr := setup(t, nil)
		a.in = strings.NewReader(test.answer)
		got, err := a.mayReplace(test.old, test.asks)
		if err != nil || got != test.want || !strings.Contains(stderr.String(), test.text) || test.text == "" && stderr.Len() > 0 {
			t.Errorf("%+v: got %v, %v, %q", test, got, err, stderr)
		}
	}
}

// On a cluster with identities the job belongs to the identity, whatever the user is called
// on this machine.
func TestAUserWithATokenSendsNoNameOfThisMachine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  map[string]string
		file string
		want string
	}{
		"open":        {map[string]string{"USER": "ada"}, "", "ada"},
		"environment": {map[string]string{"USER": "ada", "DTASK_TOKEN": "x"}, "", ""},
		"file":        {map[string]string{"USER": "ada", "DTASK_TOKEN_FILE": "/x"}, "", ""},
		"flag":        {map[string]string{"USER": "ada"}, "/x", ""},
	} {
		a, _, _ := setup(t, nil)
		a.getenv, a.tokenFile = func(key string) string { return test.env[key] }, test.file
		if got := a.specOptions().Owner; got != test.want {
			t.Errorf("%s: got owner %q, want %q", name, got, test.want)
		}
	}
}
