package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/client"
)

// contextsFile has the contexts of a user, and maxContexts is the most bytes that are read
// of it.
const (
	contextsFile = "contexts.yaml"
	contextsLock = ".contexts.lock" // locked while the file is changed
	maxContexts  = 1 << 20
	// maxToken bounds what is read of a file with a token or a join string, in bytes.
	maxToken = 8 << 10
)

// contexts are the clusters that the user has logged in to: the content of contexts.yaml.
type contexts struct {
	Current  string         `yaml:"current,omitempty"` // name; empty = none
	Contexts []savedContext `yaml:"contexts"`

	dir string // of the file; empty: the user has none
}

// savedContext is one cluster, and how to connect to it.
type savedContext struct {
	Name      string   `yaml:"name"`
	Addresses []string `yaml:"addresses"`
	Cluster   string   `yaml:"cluster,omitempty"`
	// CA has certificates in PEM, CAKeys hashes of the public keys of CAs. One of them is
	// enough.
	CA     string   `yaml:"ca,omitempty"`
	CAKeys []string `yaml:"ca_keys,omitempty"`
	// TokenFile has the token: a path that is absolute or relative to the directory.
	TokenFile string `yaml:"token_file,omitempty"`
	ID        uint64 `yaml:"id,omitempty"`   // of the identity, for display
	User      string `yaml:"user,omitempty"` // its name, for display
}

// contextName is the form of the name of a context, which names a file, too.
var contextName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`)

func parseContextName(text string) (string, error) {
	if text != "" && !contextName.MatchString(text) {
		return "", errors.New("must be 1–63 letters, digits, dots, dashes and underscores")
	}
	return text, nil
}

// configDir returns the directory of the user's settings; empty if the user has none.
func configDir(getenv func(string) string) string {
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dtask")
	}
	home := homeDir(getenv)
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".config", "dtask")
}

// loadContexts reads the contexts of the user. A missing file has none.
func loadContexts(getenv func(string) string) (*contexts, error) {
	all := &contexts{dir: configDir(getenv)}
	if all.dir == "" {
		return all, nil
	}
	path := filepath.Join(all.dir, contextsFile)
	data, err := readOwn(path, maxContexts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("reading contexts: %w", err)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithKnownFields())
	if err == nil {
		err = loader.Load(all)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading contexts: %s: %w", path, err)
	}
	for i, c := range all.Contexts {
		switch {
		case !contextName.MatchString(c.Name):
			return nil, fmt.Errorf("reading contexts: %s: invalid name %q", path, c.Name)
		case len(c.Addresses) == 0:
			return nil, fmt.Errorf("reading contexts: %s: context %s has no addresses", path, c.Name)
		case slices.ContainsFunc(all.Contexts[:i], func(o savedContext) bool { return o.Name == c.Name }):
			return nil, fmt.Errorf("reading contexts: %s: duplicate context %q", path, c.Name)
		}
	}
	return all, nil
}

// lockContexts reads the contexts of the user to change them. Other processes of the user wait
// until unlock is called, so that none of them overwrites what another saved.
func lockContexts(getenv func(string) string) (all *contexts, unlock func(), err error) {
	first := &contexts{dir: configDir(getenv)}
	if err := first.makeDir(); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(filepath.Join(first.dir, contextsLock), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in the user's directory
	if err != nil {
		return nil, nil, fmt.Errorf("locking contexts: %w", err)
	}
	unlock = func() { _ = lock.Close() } // nothing was written
	if err := lockFile(lock); err != nil {
		unlock()
		return nil, nil, fmt.Errorf("locking contexts: %w", err)
	}
	if all, err = loadContexts(getenv); err != nil {
		unlock()
		return nil, nil, err
	}
	return all, unlock, nil
}

// changeContexts calls f with the contexts of the user, and saves them if f succeeds.
func changeContexts(getenv func(string) string, f func(*contexts) error) (*contexts, error) {
	all, unlock, err := lockContexts(getenv)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f(all); err != nil {
		return nil, err
	}
	err = all.save()
	return all, err
}

// readOwn reads a file of this user, to which no other user can write.
func readOwn(path string, most int64) ([]byte, error) {
	file, err := openWithoutWaiting(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // names operation and file
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // names operation and file
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case !isOwn(info):
		return nil, fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s can be changed by other users: run chmod 600 %s", path, path)
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return data, err
}

// save writes the file, readable by the user only.
func (c *contexts) save() error {
	data, err := yaml.Dump(c)
	if err == nil {
		err = replaceFile(filepath.Join(c.dir, contextsFile), string(data))
	}
	if err != nil {
		return fmt.Errorf("writing contexts: %w", err)
	}
	return nil
}

// makeDir creates the directory.
func (c *contexts) makeDir() error {
	if c.dir == "" {
		return errors.New("missing home directory: set XDG_CONFIG_HOME to a directory for contexts")
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("creating the directory of contexts: %w", err)
	}
	return nil
}

// find returns the context of a name; nil if it is missing.
func (c *contexts) find(name string) *savedContext {
	for i := range c.Contexts {
		if c.Contexts[i].Name == name {
			return &c.Contexts[i]
		}
	}
	return nil
}

// get returns a context, or the error for the user.
func (c *contexts) get(name string) (*savedContext, error) {
	if found := c.find(name); found != nil {
		return found, nil
	}
	return nil, withHint(&client.Error{Kind: client.ErrNotFound, Message: fmt.Sprintf("unknown context %q", name)}, "dtaskctl context list shows the contexts; dtaskctl login STRING makes one")
}

// set adds or replaces a context.
func (c *contexts) set(n savedContext) {
	if found := c.find(n.Name); found != nil {
		*found = n
		return
	}
	c.Contexts = append(c.Contexts, n)
}

// remove removes a context and its token. The caller saves the contexts.
func (c *contexts) remove(name string) error {
	found, err := c.get(name)
	if err != nil {
		return err
	}
	if token := c.tokenPath(found); token != "" && filepath.Dir(token) == c.dir { // others belong to the user
		if err := os.Remove(token); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the token: %w", err)
		}
	}
	c.Contexts = slices.DeleteFunc(c.Contexts, func(o savedContext) bool { return o.Name == name })
	if c.Current == name {
		c.Current = ""
	}
	return nil
}

// tokenPath returns the file of a context's token; empty if it has none.
func (c *contexts) tokenPath(n *savedContext) string {
	if n.TokenFile == "" || filepath.IsAbs(n.TokenFile) {
		return n.TokenFile
	}
	return filepath.Join(c.dir, n.TokenFile)
}

// trust returns whom the context trusts; the zero value if the cluster has no CA.
func (c *savedContext) trust() client.Trust { return client.Trust{CA: c.CA, CAKeys: c.CAKeys} }

// keyHashes returns the hashes of the keys of the CAs that the context trusts.
func (c *savedContext) keyHashes() []string {
	keys, err := c.trust().Keys()
	if err != nil {
		return nil // it trusts none
	}
	return keys
}
