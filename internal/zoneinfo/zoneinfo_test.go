package zoneinfo

import (
	"archive/zip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEveryZoneCanBeLoaded(t *testing.T) {
	t.Parallel()
	if n := len(Names()); n < 500 {
		t.Fatalf("got %d zones", n)
	}
	for _, name := range Names() {
		zone, err := Load(name)
		if err != nil || zone.String() != name {
			t.Errorf("%s: got %v, %v", name, zone, err)
		}
	}
}

func TestTheVersionIsThatOfTheDatabase(t *testing.T) {
	t.Parallel()
	if v := Version(); !regexp.MustCompile(`^20\d\d[a-z]$`).MatchString(v) {
		t.Errorf("got %q", v)
	}
}

func TestZonesWithEqualDataShareIt(t *testing.T) {
	t.Parallel()
	db := unpacked()
	first := map[string]*byte{}
	for _, name := range db.names {
		data := db.zones[name]
		if at, known := first[string(data)]; known && at != &data[0] {
			t.Errorf("%s has a copy of its own", name)
		}
		first[string(data)] = &data[0]
	}
	if len(first) >= len(db.names) {
		t.Errorf("all %d zones differ", len(first))
	}
}

// The toolchain of a developer may have a newer database than the one that is embedded.
func TestTheZonesAreThoseOfTheToolchain(t *testing.T) {
	t.Parallel()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), "\nDATA="+Version()+"\n") {
		t.Skipf("the toolchain's database is not %s: make zones updates the embedded one", Version())
	}
	archive, err := zip.OpenReader(filepath.Join(dir, "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		want, err := time.LoadLocationFromTZData(f.Name, data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Load(f.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		compare(t, got, want)
	}
}

// compare compares the offsets of two zones from 1900 to 2100.
func compare(t *testing.T, got, want *time.Location) {
	t.Helper()
	for at := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2100; at = at.Add(7 * 24 * time.Hour) {
		start, end := at.In(want).ZoneBounds()
		start2, end2 := at.In(got).ZoneBounds()
		name, offset := at.In(want).Zone()
		name2, offset2 := at.In(got).Zone()
		if !start.Equal(start2) || !end.Equal(end2) || name != name2 || offset != offset2 {
			t.Errorf("%s at %s: got %s %d, want %s %d", want, at, name2, offset2, name, offset)
			return
		}
	}
}

func TestTransitionsAreThoseOfTheClocks(t *testing.T) {
	t.Parallel()
	zone, err := Load("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	var got []string
	for tr := range Transitions(zone, from, from.AddDate(1, 0, 0)) {
		got = append(got, tr.At.Format(time.RFC3339)+" "+tr.Before.String()+" "+tr.After.String())
	}
	const want = "2026-03-29T01:00:00Z 1h0m0s 2h0m0s, 2026-10-25T01:00:00Z 2h0m0s 1h0m0s, 2027-03-28T01:00:00Z 1h0m0s 2h0m0s"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got %s", s)
	}
	apia, _ := Load("Pacific/Apia")
	for tr := range Transitions(apia, time.Date(2011, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2012, 1, 1, 0, 0, 0, 0, time.UTC)) {
		if tr.After-tr.Before != 24*time.Hour {
			t.Errorf("got %v", tr)
		}
	}
	for tr := range Transitions(time.UTC, from, from.AddDate(100, 0, 0)) {
		t.Errorf("UTC has the transition %v", tr)
	}
}

func TestAnUnknownZoneHasASuggestion(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"europe/berlin": "Europe/Berlin", "Berlin": "Europe/Berlin", "new york": "America/New_York", "Europe/Belrin": "Europe/Berlin",
		"utc": "UTC", "PST": "America/Los_Angeles", "cest": "Europe/Berlin", "XST": "", "+02:00": "", "UTC+2": "", "": "", "Local": "", "Mars/Olympus": "",
	} {
		zone, err := Load(name)
		unknown, ok := errors.AsType[*UnknownError](err)
		if zone != nil || !ok || unknown.Name != name || unknown.Suggestion != want {
			t.Errorf("%q: got %v, %v; want %q", name, zone, err, want)
		}
		if want == "" && !strings.HasSuffix(err.Error(), "Europe/Berlin, America/New_York or UTC") {
			t.Errorf("%q: got %v", name, err)
		}
	}
}

func TestADamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := unpack(packed[:len(packed)/2]); err == nil {
		t.Error("half of the file was accepted")
	}
	if _, err := unpack(nil); err == nil {
		t.Error("no file was accepted")
	}
}

// Package time ends bounds at each year, and on the last day of a leap year in the past.
func TestBoundsEndWhereTheOffsetChanges(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		zone, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		end := time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		for b := BoundsOf(zone, 0); b.End < end; {
			next := BoundsOf(zone, b.End)
			if next.Start != b.End || next.Offset == b.Offset || next.End <= next.Start {
				t.Errorf("%s: %v follows %v", name, next, b)
				break
			}
			for _, at := range []int64{next.Start, (next.Start + next.End) / 2, next.End - 1} {
				if inside := BoundsOf(zone, at); inside != next {
					t.Errorf("%s: %v at %d is not %v", name, inside, at, next)
				}
			}
			b = next
		}
	}
	berlin, _ := Load("Europe/Berlin")
	for _, year := range []int{1996, 2000, 2024, 2028, 2096} {
		at := time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC)
		b := BoundsOf(berlin, at.Unix())
		if start, end := time.Unix(b.Start, 0).UTC(), time.Unix(b.End, 0).UTC(); start.Month() != time.October || end.Month() != time.March || end.Year() != year+1 {
			t.Errorf("%d: from %s to %s", year, start, end)
		}
	}
}
