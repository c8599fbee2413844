package process

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"
)

// A User is the account under which a [Pool] runs programs, other than that of the worker.
// Nil is the worker's own user.
type User struct {
	Name     string // login name; the number if it has no account
	Home     string // home directory; empty if it has no account
	UID, GID uint32
	Groups   []uint32 // supplementary groups
}

var errRunAsRoot = errors.New("user root: commands would have all rights of the worker: name another user")

// LookupUser finds a user by USER or USER:GROUP, names or numbers. Without a group, it is
// the user's own one. A number without an account needs a group.
func LookupUser(text string) (*User, error) {
	name, group, hasGroup := strings.Cut(text, ":")
	u := &User{Name: name}
	account, err := findAccount(name)
	switch {
	case err == nil:
		err = u.fill(account)
	case isNumber(name) && hasGroup:
		u.UID, err = parseID(name)
	case isNumber(name):
		err = fmt.Errorf("user %s has no account: write %s:GROUP", name, name)
	}
	if err != nil {
		return nil, err
	}
	if hasGroup {
		if u.GID, err = findGroup(group); err != nil {
			return nil, err
		}
	}
	if u.UID == 0 {
		return nil, errRunAsRoot
	}
	return u, nil
}

// LookupAccount finds the user with a login name, which may look like a number.
func LookupAccount(name string) (*User, error) {
	account, err := user.Lookup(name)
	if err != nil || account.Username != name {
		return nil, fmt.Errorf("unknown user %q: create it", name)
	}
	u := new(User)
	if err := u.fill(account); err != nil {
		return nil, err
	}
	if u.UID == 0 {
		return nil, errRunAsRoot
	}
	return u, nil
}

// fill takes over what an account says.
func (u *User) fill(account *user.User) (err error) {
	u.Name, u.Home = account.Username, account.HomeDir
	if u.UID, err = parseID(account.Uid); err != nil {
		return err
	}
	if u.GID, err = parseID(account.Gid); err != nil {
		return err
	}
	groups, err := account.GroupIds()
	if err != nil {
		return fmt.Errorf("finding the groups of user %s: %w", u.Name, err)
	}
	for _, text := range groups {
		id, err := parseID(text)
		if err != nil {
			return err
		}
		u.Groups = append(u.Groups, id)
	}
	return nil
}

// findAccount finds an account by its name, or else by its number.
func findAccount(name string) (*user.User, error) {
	account, err := user.Lookup(name)
	if err != nil && isNumber(name) {
		account, err = user.LookupId(name)
	}
	if err != nil {
		return nil, fmt.Errorf("unknown user %q: create it, or write UID:GID", name)
	}
	return account, nil
}

// findGroup returns the number of a group. It need not exist if it is given as a number.
func findGroup(name string) (uint32, error) {
	if group, err := user.LookupGroup(name); err == nil {
		return parseID(group.Gid)
	}
	if isNumber(name) {
		return parseID(name)
	}
	return 0, fmt.Errorf("unknown group %q: create it, or write its number", name)
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 1<<32-1 { // the kernel's "no change"
		return 0, fmt.Errorf("invalid user or group number %q", text)
	}
	return uint32(id), nil
}
