package cli

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
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

// Clusters of one name each get a context of their own, and none of them is lost, however the
// logins overlap.
func TestLoginsAtTheSameTimeKeepAllContexts(t *testing.T) {
	t.Parallel()
	a, _, _ := setup(t, map[string]string{"XDG_CONFIG_HOME": t.TempDir()})
	const logins = 16
	names, tokens := [logins]string{}, [logins]client.Secret{}
	var group sync.WaitGroup
	for i := range logins {
		join := joinTo(t, i)
		all, err := loadContexts(a.getenv) // before any other login has ended
		if err != nil {
			t.Fatal(err)
		}
		pending, token, err := all.pendingToken(join)
		if err != nil {
			t.Fatal(err)
		}
		tokens[i] = token
		group.Go(func() {
			saved := savedContext{Cluster: join.Cluster(), Addresses: join.Addresses(), ID: 7}
			if _, old, err := a.keepLogin(&saved, join, pending); err != nil || old != nil {
				t.Errorf("got %+v, %v", old, err)
			}
			names[i] = saved.Name
		})
	}
	group.Wait()
	all, err := loadContexts(a.getenv)
	if err != nil || len(all.Contexts) != logins || all.find("prod") == nil {
		t.Fatalf("got %+v, %v", all, err)
	}
	for i, name := range names {
		found, err := all.get(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(all.tokenPath(found))
		if err != nil || found.Cluster != joinTo(t, i).Cluster() || strings.TrimSpace(string(text)) != tokens[i].Reveal() {
			t.Errorf("context %s is of cluster %s, with a token of another login: %v", name, found.Cluster, err)
		}
	}
}

// joinTo is a join string of one of several clusters of the same name.
func joinTo(t *testing.T, cluster int) client.JoinString {
	t.Helper()
	text, err := (&auth.JoinString{
		ClusterID: fmt.Sprintf("%08x%024x", cluster, 1), ID: 1, Purpose: auth.JoinUser, Addresses: []string{"127.0.0.1:1"}, ClusterName: "prod",
	}).Text()
	if err != nil {
		t.Fatal(err)
	}
	join, err := client.ParseJoinString(client.Secret(text.Reveal()), "user")
	if err != nil {
		t.Fatal(err)
	}
	return join
}
