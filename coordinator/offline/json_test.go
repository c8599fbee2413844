package offline

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// checkNames checks the names of all exported fields of a type, and of those in them.
func checkNames(t *testing.T, in string, of reflect.Type) {
	t.Helper()
	for kind := of.Kind(); kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map; kind = of.Kind() {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]() {
		return
	}
	for f := range fieldsOf(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !snakeCase.MatchString(name) {
			t.Errorf("%s.%s is called %q in JSON, want words in lower case with underscores", in, f.Name, name)
		}
		checkNames(t, in+"."+f.Name, f.Type)
	}
}

// fieldsOf yields the exported fields of a struct.
func fieldsOf(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(of) {
			if f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

// What the commands print with -o json is read by scripts beside the output of dtaskctl: it
// has names of the same form.
func TestTheJSONOfTheCommandsHasNamesInSnakeCase(t *testing.T) {
	t.Parallel()
	for _, of := range []reflect.Type{
		reflect.TypeFor[Report](), reflect.TypeFor[MissingReport](), reflect.TypeFor[Plan](), reflect.TypeFor[Discarded](),
		reflect.TypeFor[BackupReport](), reflect.TypeFor[Restored](),
	} {
		checkNames(t, of.Name(), of)
	}
}
