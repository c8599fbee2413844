package process

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/test/programfile"
)

func TestAStartErrorTellsWhatIsMissingAndWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		programfile.Write(t, path, text, mode)
		return path
	}
	file("plain", "echo", 0o600)
	file("alien", "#!/no/such/shell\t-e\n", 0o700)
	file("windows", "#!/bin/sh\r\n", 0o700)
	file("headless", "\x01\x02", 0o700)
	loaderless := file("loaderless", "", 0o700)
	withoutLoader(t, loaderless)
	for program, want := range map[string]string{
		"nosuch":     "starting nosuch: program not found in PATH: install it on the worker's machine, or set another PATH",
		"/no/such":   "starting /no/such: no such file or directory: it must exist on the worker's machine",
		"./no":       "starting ./no: no such file or directory: relative to the working directory, which is empty unless the task sets cwd",
		"./plain":    "starting ./plain: not executable: run chmod +x on the worker's machine",
		"./alien":    `starting ./alien: its interpreter "/no/such/shell": no such file or directory: install it on the worker's machine, or correct the first line of the script`,
		"./windows":  `starting ./windows: its interpreter "/bin/sh\r": no such file or directory: end the lines of the script with LF instead of CR LF`,
		"./headless": "starting ./headless: exec format error: a script must start with a line such as #!/bin/sh, a binary must be built for the worker's machine",
		loaderless:   "starting " + loaderless + ": its dynamic loader: no such file or directory: build it for the worker's machine, or link it statically",
	} {
		_, err := programs.Run(t.Context(), Spec{Argv: []string{program}, Dir: dir, Env: []string{"PATH=" + DefaultPath}})
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", program, err, want)
		}
	}
	gone := filepath.Join(dir, "gone")
	_, err := programs.Run(t.Context(), Spec{Argv: []string{"true"}, Dir: gone})
	if want := "starting in directory " + gone + ": no such file or directory: cwd must be a directory on the worker's machine"; err == nil || err.Error() != want {
		t.Errorf("a directory that is missing:\n got %v\nwant %s", err, want)
	}
}

// withoutLoader writes a binary whose dynamic loader does not exist.
func withoutLoader(t *testing.T, path string) {
	t.Helper()
	const loader = "/no/such/loader\x00"
	head := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(thisMachine(t)), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	segment := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(loader)), Memsz: uint64(len(loader))}
	var b bytes.Buffer
	for _, part := range []any{head, segment, []byte(loader)} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	programfile.Write(t, path, b.String(), 0o700)
}

// thisMachine returns the machine of this program's own binary.
func thisMachine(t *testing.T) elf.Machine {
	t.Helper()
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	return self.Machine
}
