package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// As makes an identity with a role and namespaces, and returns a dtaskctl that has its
// token, for the same coordinators. The token is in a file of dir. c must be an admin's.
func (c Ctl) As(ctx context.Context, dir, name, role string, namespaces ...string) (Ctl, error) {
	file := filepath.Join(dir, name+".token")
	args := []string{"token", "create", "--name", name, "--role", role, "--out", file}
	for _, n := range namespaces {
		args = append(args, "--namespace", n)
	}
	if err := c.Run(ctx, args...).Err(); err != nil {
		return c, err
	}
	c.Env = append(slices.Clip(c.Env), "DTASK_TOKEN_FILE="+file) // the last one counts
	return c, nil
}

// Identity returns the number of the identity with a name.
func (c Ctl) Identity(ctx context.Context, name string) (string, error) {
	var list struct {
		Tokens []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"tokens"`
	}
	if err := c.read(ctx, &list, "token", "list"); err != nil {
		return "", err
	}
	for _, x := range list.Tokens {
		if x.Name == name {
			return x.ID, nil
		}
	}
	return "", fmt.Errorf("no identity is called %s: %+v", name, list)
}
