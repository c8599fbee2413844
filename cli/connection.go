package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/client"
)

// connectionHelp is the part of help texts that says which cluster a command connects to.
const connectionHelp = `The coordinators are those of the first of these: --addr or --socket, --context,
DTASK_ADDR, DTASK_CONTEXT, the context that dtaskctl context use has chosen, DTASK_SOCKET,
` + client.DefaultAddr + `. The context that is chosen is ignored as a whole if --addr, --socket or
DTASK_ADDR is set; one that --context or DTASK_CONTEXT names still has the CA and the
token. Both have an option of their own: --ca-file or DTASK_CA_FILE, and --token-file,
DTASK_TOKEN_FILE or DTASK_TOKEN.`

// A connection is how dtaskctl reaches a cluster, as flags, environment and contexts say.
type connection struct {
	addrs   []string // empty: the client's default
	cluster string   // ID; empty: that of the first coordinator that answers
	context string   // name of the context that was used; empty = none
	token   client.Secret
	// credentials secure the connection; nil: plaintext, on this machine only.
	credentials credentials.TransportCredentials
}

// connection returns how to reach the cluster.
func (a *app) connection() (*connection, error) {
	if len(a.addrs) > 0 && a.socket != "" {
		return nil, errors.New("--addr and --socket are mutually exclusive")
	}
	saved, all, err := a.savedContext()
	if err != nil {
		return nil, err
	}
	conn := &connection{
		addrs:   a.addresses(saved),
		cluster: cmp.Or(a.cluster, a.getenv("DTASK_CLUSTER_ID")),
	}
	if saved != nil {
		conn.context = saved.Name
		conn.cluster = cmp.Or(conn.cluster, saved.Cluster)
	}
	if conn.credentials, err = a.credentials(saved); err != nil {
		return nil, err
	}
	if conn.token, err = a.token(all, saved); err != nil {
		return nil, err
	}
	return conn, nil
}

// credentials returns those for the CA that the user set, or that of the context; nil without
// one.
func (a *app) credentials(saved *savedContext) (credentials.TransportCredentials, error) {
	if path := cmp.Or(a.caFile, a.getenv("DTASK_CA_FILE")); path != "" {
		creds, err := client.TLS(path)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		return creds, nil
	}
	if saved == nil || saved.CA == "" && len(saved.CAKeys) == 0 {
		return nil, nil //nolint:nilnil // none is needed on loopback
	}
	a.usedContext = saved.Name
	creds, err := saved.trust().FollowCA(func(ca string) { a.changedCA.note(saved.Name, ca) })
	if err != nil {
		return nil, fmt.Errorf("context %s: %w", saved.Name, err)
	}
	return creds, nil
}

// connectionError makes an error of connection a usage error, unless it has an exit code.
func connectionError(err error) error {
	if errors.Is(err, client.ErrNotFound) {
		return err
	}
	return usage(err)
}

// savedContext returns the context that applies; nil if none does.
func (a *app) savedContext() (*savedContext, *contexts, error) {
	name := cmp.Or(a.context, a.getenv("DTASK_CONTEXT"))
	if name == "" && (len(a.addrs) > 0 || a.socket != "" || a.getenv("DTASK_ADDR") != "") {
		return nil, nil, nil
	}
	all, err := loadContexts(a.getenv)
	if err != nil {
		return nil, nil, err
	}
	if name = cmp.Or(name, all.Current); name == "" {
		return nil, all, nil
	}
	saved, err := all.get(name)
	return saved, all, err
}

// addresses returns the addresses of coordinators; empty for the client's default.
func (a *app) addresses(saved *savedContext) []string {
	env := splitAddresses(a.getenv("DTASK_ADDR"))
	switch {
	case len(a.addrs) > 0:
		return splitAddresses(a.addrs...)
	case a.socket != "":
		return []string{"unix:" + a.socket}
	case a.context != "" && saved != nil:
		return saved.Addresses
	case len(env) > 0:
		return env
	case saved != nil:
		return saved.Addresses
	}
	if socket := a.getenv("DTASK_SOCKET"); socket != "" {
		return []string{"unix:" + socket}
	}
	return nil
}

func splitAddresses(lists ...string) (addrs []string) {
	for _, list := range lists {
		for addr := range strings.SplitSeq(list, ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// token returns the token that the user set, or that of the context; empty without
// one.
func (a *app) token(all *contexts, saved *savedContext) (client.Secret, error) {
	token, path := a.tokenSource(all, saved)
	if path == "" {
		return token, nil
	}
	return a.readSecret("token", path)
}

// tokenSource returns the token of the environment, or the path of the file that has the
// token; both are empty without one.
func (a *app) tokenSource(all *contexts, saved *savedContext) (token client.Secret, path string) {
	if path = cmp.Or(a.tokenFile, a.getenv("DTASK_TOKEN_FILE")); path != "" {
		return "", path
	}
	if token = client.Secret(a.getenv("DTASK_TOKEN")); token == "" && saved != nil {
		path = all.tokenPath(saved)
	}
	return token, path
}

// hasToken reports whether calls are made with a token. It reads no token.
func (a *app) hasToken() bool {
	saved, all, err := a.savedContext()
	if err != nil {
		return false // the connection reports it
	}
	token, path := a.tokenSource(all, saved)
	return token != "" || path != ""
}

// readSecret reads a file with a token or a join string, as what says. It warns if others
// can read it.
func (a *app) readSecret(what, path string) (client.Secret, error) {
	file, err := os.Open(path) //nolint:gosec // named by the user
	if err != nil {
		return "", fmt.Errorf("reading the %s: %w", what, err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		a.warn("warning: %s can be read by other users: run chmod 600 %s", path, path)
	}
	return readSecretText(what, file)
}

// readSecretText reads the text of a token or a join string.
func readSecretText(what string, r io.Reader) (client.Secret, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxToken))
	if err != nil {
		return "", fmt.Errorf("reading the %s: %w", what, err)
	}
	return client.Secret(bytes.TrimSpace(text)), nil
}
