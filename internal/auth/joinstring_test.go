package auth

import (
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"
)

func joinString() *JoinString {
	j := &JoinString{ClusterID: "00112233445566778899aabbccddeeff", Purpose: JoinWorker, Addresses: []string{"m1:7460", "10.0.0.2:7460"}}
	j.ID, j.Secret = 1<<33+7, NewJoinSecret()
	for i := range j.CAKey {
		j.CAKey[i] = byte(i)
	}
	return j
}

func text(t *testing.T, j *JoinString) string {
	t.Helper()
	s, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	return s.Reveal()
}

func TestAJoinStringIsReadBackFromItsTextInAnyCase(t *testing.T) {
	t.Parallel()
	j := joinString()
	s := text(t, j)
	for _, form := range []string{s, strings.ToUpper(s), "  " + s + "\n"} {
		got, err := ParseJoinString(form, JoinWorker)
		if err != nil || !reflect.DeepEqual(got, j) || !IsJoinString(form) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

// Programs that know no names read a string without one, and refuse others by their version.
func TestOnlyAJoinStringWithTheNameOfItsClusterHasAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]byte{"": 1, "eu-prod-1": 2, strings.Repeat("n", 63): 2} {
		j := joinString()
		j.ClusterName = name
		s := text(t, j)
		data, err := joinEncoding.DecodeString(strings.TrimPrefix(s, joinPrefix))
		if err != nil || data[0] != want {
			t.Errorf("%q: version %d, %v, want %d", name, data[0], err, want)
		}
		if got, err := ParseJoinString(s, JoinWorker); err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("%q: got %+v, %v", name, got, err)
		}
	}
}

func TestTheVersionOfAJoinStringIsChecked(t *testing.T) {
	t.Parallel()
	j := joinString()
	j.ClusterName = "prod"
	data, err := joinEncoding.DecodeString(strings.TrimPrefix(text(t, j), joinPrefix))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func([]byte) []byte
		want   string
	}{
		"later version": {func(b []byte) []byte { b[0] = 3; return b }, "join string of version 3: this version of dtask reads versions up to 2"},
		"bad name":      {func(b []byte) []byte { b[len(b)-1] = ':'; return b }, "malformed join string"},
		"no name":       {func(b []byte) []byte { return append(b[:len(b)-5], 0) }, "malformed join string"},
		"long name":     {func(b []byte) []byte { b[len(b)-5]++; return b }, "malformed join string"},
		"name in 1":     {func(b []byte) []byte { b[0] = 1; return b }, "malformed join string"},
	} {
		b := test.change(append([]byte(nil), data[:len(data)-4]...))
		s := joinPrefix + joinEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
		if _, err := ParseJoinString(s, JoinWorker); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}

func TestEachFaultOfAJoinStringHasItsOwnError(t *testing.T) {
	t.Parallel()
	s := text(t, joinString())
	for name, test := range map[string]struct{ text, want string }{
		"an address":      {"127.0.0.1:7460", "not a join string"},
		"cut":             {s[:len(s)-3], "damaged join string"},
		"mistyped":        {s[:30] + swap(s[30]) + s[31:], "damaged join string"},
		"another purpose": {s, "is for a worker (dtask-worker --join STRING), not for a user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseJoinString(test.text, JoinUser)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func swap(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

func TestAnyChangedOrMissingCharacterOfAJoinStringIsFound(t *testing.T) {
	t.Parallel()
	s := text(t, joinString())
	for i := range s {
		if _, err := ParseJoinString(s[:i]+swap(s[i])+s[i+1:], JoinWorker); err == nil {
			t.Errorf("character %d changed: accepted", i)
		}
		if _, err := ParseJoinString(s[:i], JoinWorker); err == nil {
			t.Errorf("cut to %d characters: accepted", i)
		}
	}
}

func TestAJoinStringNeedsAClusterAPurposeAndAddresses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*JoinString){
		"cluster":        func(j *JoinString) { j.ClusterID = "x" },
		"number":         func(j *JoinString) { j.ID = MaxJoinID + 1 },
		"purpose":        func(j *JoinString) { j.Purpose = 9 },
		"no addresses":   func(j *JoinString) { j.Addresses = nil },
		"many addresses": func(j *JoinString) { j.Addresses = make([]string, 9) },
		"empty address":  func(j *JoinString) { j.Addresses = []string{""} },
		"name":           func(j *JoinString) { j.ClusterName = "eu:prod" },
		"long address":   func(j *JoinString) { j.Addresses = []string{strings.Repeat("a", 256)} },
	} {
		j := joinString()
		change(j)
		if s, err := j.Text(); err == nil {
			t.Errorf("%s: got %s", name, s)
		}
	}
}

func FuzzParseJoinString(f *testing.F) {
	j := joinString()
	s, _ := j.Text()
	f.Add(s.Reveal())
	j.ClusterName = "prod"
	s, _ = j.Text()
	f.Add(s.Reveal())
	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseJoinString(in, JoinWorker)
		if err != nil {
			return
		}
		if again := text(t, got); again != strings.ToLower(strings.TrimSpace(in)) {
			t.Errorf("%q is read as %q", in, again)
		}
	})
}
