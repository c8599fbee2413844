package spec

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
)

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/faults/*.[yj]*", "testdata/jobs/*.[yj]*", "../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(text) < 8<<10 { // small seeds make a fast fuzzer
				f.Add(text)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		job, err := Parse("f", text, Options{})
		var fs Faults
		switch {
		case err == nil:
			if fs = Check(job); fs != nil {
				t.Fatalf("a parsed job does not pass the check: %v", fs)
			}
			if again, e := Parse("f", text, Options{}); e != nil || !proto.Equal(job, again) {
				t.Fatalf("the same text became another job: %v", e)
			}
		case !errors.As(err, &fs) || len(fs) == 0 || job != nil:
			t.Fatalf("got %v and %v", job, err)
		}
		for _, f := range fs {
			if f.Line < 1 || f.Column < 1 || f.Where == "" || f.What == "" || f.Do == "" {
				t.Fatalf("fault %+v is not complete", f)
			}
		}
	})
}

func FuzzParseSchedule(f *testing.F) {
	for _, pattern := range []string{"testdata/schedules/*.[yj]*", "testdata/schedule_faults/*.[yj]*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSchedule("f", text, Options{})
		var fs Faults
		switch {
		case err == nil:
			if s.Job == nil || s.Calendar == nil {
				t.Fatalf("got %v", s)
			}
			ticks := s.Calendar.Preview(spring, 5)
			for i, tick := range ticks {
				if i > 0 && !tick.At.After(ticks[i-1].At) {
					t.Fatalf("%s follows %s", tick.At, ticks[i-1].At)
				}
			}
		case !errors.As(err, &fs) || len(fs) == 0 || s != nil:
			t.Fatalf("got %v and %v", s, err)
		}
		for _, f := range fs {
			if f.Line < 1 || f.Column < 1 || f.Where == "" || f.What == "" || f.Do == "" {
				t.Fatalf("fault %+v is not complete", f)
			}
		}
	})
}
