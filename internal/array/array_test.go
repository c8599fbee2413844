package array

import (
	"errors"
	"strings"
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestRangesAreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0-9": "0-9", "7": "7", "0-100:5": "0-100:5", "0-99:5": "0-95:5", "9-12,1,5": "1|5|9-12", "1, 3-4": "1|3-4",
		"0-4294967295": "0-4294967295", "3-4:7": "3",
	} {
		list, err := ParseRanges(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		for _, r := range list {
			got = append(got, Format(r))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: got %v, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "-1", "1-", "5-3", "1-2:0", "1-9:-1", "a", "1,,2", "1-5,5", "01", "4294967296", "3:2", "1-2-3", strings.Repeat("1,", MaxRanges)} {
		if _, err := ParseRanges(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// FuzzParseRanges: what is accepted is ascending, apart, and says the same
// when it is written again.
func FuzzParseRanges(f *testing.F) {
	for _, text := range []string{"0-9", "0-100:5", "1,5,9-12", "9-3", "-1", "0-4294967295:4294967295"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseRanges(text)
		if bad, ok := errors.AsType[*RangeError](err); err != nil && (!ok || bad.What == "" || bad.Do == "") {
			t.Fatalf("error %v is not complete", err)
		}
		if err != nil {
			return
		}
		var words []string
		for i, r := range list {
			if RangeItems(r) == 0 || i > 0 && r.GetFirst() <= list[i-1].GetLast() || (r.GetLast()-r.GetFirst())%r.GetStep() != 0 {
				t.Fatalf("%q gives %v", text, list)
			}
			words = append(words, Format(r))
		}
		again, err := ParseRanges(strings.Join(words, ","))
		if err != nil || Items(&dtaskv1.ArraySpec{Ranges: again}) != Items(&dtaskv1.ArraySpec{Ranges: list}) {
			t.Fatalf("%q is written %v, which gives %v, %v", text, words, again, err)
		}
	})
}

func TestExpressionsStandForTheItem(t *testing.T) {
	t.Parallel()
	ranged, word := Item{Index: 17}, Item{Index: 2, JSON: []byte(`"a \"b\""`)}
	object := Item{Index: 3, JSON: []byte(`{"n":1.50,"name":"x y","list":[1]}`)}
	for _, c := range []struct {
		text   string
		it     Item
		isJSON bool
		want   string
	}{
		{"plain $HOME ${x}", ranged, false, "plain $HOME ${x}"},
		{"${{ item }}-${{index}}", ranged, false, "17-17"},
		{"${{ item }}.${{ index }}", word, false, `a "b".2`},
		{"${{ item.name }}/${{ item.n }}/${{item.list}}", object, false, "x y/1.50/[1]"},
		{"${{ item }}", object, false, `{"n":1.50,"name":"x y","list":[1]}`},
		{"$${{ item }}", ranged, false, "${{ item }}"},
		{`{"n":"${{ item.n }}","all":"${{ item }}","s":"is ${{ item.name }}"}`, object, true, `{"n":1.50,"all":{"n":1.50,"name":"x y","list":[1]},"s":"is x y"}`},
		{`["${{ item }}","<${{ item }}>"]`, word, true, `["a \"b\"","<a \"b\">"]`},
		{`["\"${{ index }}\""]`, ranged, true, `["\"17\""]`},
	} {
		if got, err := Expand(c.text, Scope{Item: &c.it}, c.isJSON); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"${{ x }}", "${{ item", "${{ item. }}", "${{ item.a b }}", "${{}}"} {
		if _, err := Expand(text, Scope{Item: &object}, false); err == nil || Check(text) == nil {
			t.Errorf("%s is known", text)
		}
	}
	if _, err := Expand("${{ item.size }}", Scope{Item: &object}, false); err == nil {
		t.Error("a field that is not there is given")
	}
	if !UsesItem("x ${{ item.a }}") || UsesItem("$${{ item }} ${{ github.ref }} ${{ scheduled.at }}") {
		t.Error("UsesItem is wrong about what is an expression of an item")
	}
}

func TestExpressionsStandForTheRunOfASchedule(t *testing.T) {
	t.Parallel()
	run := &Run{At: "2026-03-28T01:30:00Z", Date: "2026-03-28"}
	item := &Item{Index: 3}
	for _, c := range []struct {
		text   string
		scope  Scope
		isJSON bool
		want   string
	}{
		{"${{ scheduled.date }} at ${{scheduled.at}} after (${{ scheduled.previous }})", Scope{Run: run}, false, "2026-03-28 at 2026-03-28T01:30:00Z after ()"},
		{"$${{ scheduled.date }}", Scope{Run: run}, false, "${{ scheduled.date }}"},
		{"${{ scheduled.date }}/${{ index }}", Scope{Item: item, Run: run}, false, "2026-03-28/3"},
		{`{"day":"${{ scheduled.date }}","n":"${{ item }}","all":"is ${{ scheduled.previous }}"}`, Scope{Item: item, Run: run}, true, `{"day":"2026-03-28","n":3,"all":"is "}`},
	} {
		if got, err := Expand(c.text, c.scope, c.isJSON); err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.text, got, err, c.want)
		}
	}
	for text, scope := range map[string]Scope{"${{ scheduled.date }}": {Item: item}, "${{ index }}": {Run: run}, "${{ scheduled.day }}": {Run: run}, "${{ scheduled }}": {Run: run}} {
		if got, err := Expand(text, scope, false); err == nil {
			t.Errorf("%s: got %s, want an error", text, got)
		}
	}
	if !UsesRun("x ${{ scheduled.date }}") || UsesRun("$${{ scheduled.at }} ${{ item.a }} ${{ scheduled.day }}") {
		t.Error("UsesRun is wrong about what is an expression of a run")
	}
}

func TestARunWithoutATickHasEmptyValues(t *testing.T) {
	t.Parallel()
	if got := RunOf(&dtaskv1.ScheduledRun{Schedule: "x", Manual: true, Timezone: "UTC"}); *got != (Run{}) {
		t.Errorf("got %+v", got)
	}
	got := RunOf(&dtaskv1.ScheduledRun{TickMs: 1_790_000_000_000, PreviousMs: 1_789_999_940_000, Date: "2026-09-21"})
	if want := (Run{At: "2026-09-21T14:13:20Z", Previous: "2026-09-21T14:12:20Z", Date: "2026-09-21"}); *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if RunOf(nil) != nil {
		t.Error("a job that is not the run of a schedule has values")
	}
}

func TestTasksAreCounted(t *testing.T) {
	t.Parallel()
	spec := &dtaskv1.TaskSpec{Array: &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{First: 0, Last: 100, Step: 5}, {First: 200, Last: 200, Step: 1}}}}
	if Items(spec.GetArray()) != 22 || Tasks(spec) != 22 {
		t.Errorf("%d items, %d tasks; want 22", Items(spec.GetArray()), Tasks(spec))
	}
	spec.Array.Chunk = 5
	if Tasks(spec) != 5 || Tasks(&dtaskv1.TaskSpec{}) != 1 {
		t.Errorf("%d tasks in chunks of 5, want 5", Tasks(spec))
	}
	spec.Array.Part = 1
	if Tasks(spec) != 0 {
		t.Error("a further part counts tasks")
	}
}

func TestReplaceKeepsWhatItDoesNotReplace(t *testing.T) {
	t.Parallel()
	value := func(expression string) (string, bool) {
		return "<" + expression + ">", strings.HasPrefix(expression, "p.")
	}
	for text, want := range map[string]struct {
		out   string
		whole bool
	}{
		"":                            {"", false},
		"plain":                       {"plain", false},
		"${{ p.a }}":                  {"<p.a>", true},
		"${{p.a}} ":                   {"<p.a> ", false},
		" ${{p.a}}":                   {" <p.a>", false},
		"${{ p.a }}${{ p.b }}":        {"<p.a><p.b>", false},
		"$${{ p.a }}${{ p.a }}":       {"$${{ p.a }}<p.a>", false},
		"${{ index }}${{ p.a }}":      {"${{ index }}<p.a>", false},
		"${{ index ${{ p.a }} }}":     {"${{ index <p.a> }}", false},
		"${{ p.a }":                   {"${{ p.a }", false},
		"${{ p.a }} and ${{ p.b }":    {"<p.a> and ${{ p.b }", false},
		"a }} ${{ p.a }} }} ${{ item": {"a }} <p.a> }} ${{ item", false},
	} {
		if out, whole := Replace(text, value); out != want.out || whole != want.whole {
			t.Errorf("%q: got %q, %t, want %q, %t", text, out, whole, want.out, want.whole)
		}
	}
}
