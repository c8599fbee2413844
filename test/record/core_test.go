package record

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheDigestOfTheCoreDependsOnItsCodeOnly(t *testing.T) {
	t.Parallel()
	const code = "package fsm\n\n// One is a number.\nfunc One() int { return 1 }\n"
	before := digestOf(t, map[string]string{"fsm/one.go": code})
	for name, x := range map[string]struct {
		files map[string]string
		same  bool
	}{
		"another comment": {map[string]string{"fsm/one.go": "package fsm\n\n// One is 1.\n\nfunc One() int {\n\treturn 1\n}\n"}, true},
		"a test":          {map[string]string{"fsm/one.go": code, "fsm/one_test.go": code}, true},
		"another name":    {map[string]string{"fsm/two.go": code}, true},
		"another package": {map[string]string{"fsm/one.go": code, "cli/two.go": code}, true},
		"other code":      {map[string]string{"fsm/one.go": "package fsm\n\nfunc One() int { return 2 }\n"}, false},
		"a directive":     {map[string]string{"fsm/one.go": "//go:build linux\n\n" + code}, false},
		"one more file":   {map[string]string{"fsm/one.go": code, "fsm/sub/two.go": code}, false},
		"another library": {map[string]string{"fsm/one.go": code, "go.mod": "module x\n\nrequire go.etcd.io/bbolt v1.5.0\n"}, false},
	} {
		if after := digestOf(t, x.files); (after == before) != x.same {
			t.Errorf("%s: the digest was %s and is %s", name, before, after)
		}
	}
}

func digestOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range corePackages {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, has := files["go.mod"]; !has {
		files["go.mod"] = "module x\n\nrequire go.etcd.io/bbolt v1.4.0\n"
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := CoreDigest(root)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}
