package client

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestItemsThatDoNotFitIntoAMessageFollowInParts(t *testing.T) {
	t.Parallel()
	whole := &dtaskv1.TaskSpec{Id: "map", Policy: 1, Dependencies: []uint32{0}, Conditions: []dtaskv1.Condition{dtaskv1.Condition_CONDITION_ENDED}, Body: &dtaskv1.TaskBody{Run: "x"}, Array: &dtaskv1.ArraySpec{Chunk: 7, MaxParallel: 3}}
	for i := range 3000 {
		whole.Array.Items = append(whole.Array.Items, fmt.Appendf(nil, `"%01000d"`, i))
	}
	whole.Array.ItemsTotal = 3000
	parts := splitArrays([]*dtaskv1.TaskSpec{{Id: "a"}, whole})
	if len(parts) < 8 || parts[1].GetArray().GetItemsTotal() != 3000 || parts[1].GetBody().GetRun() != "x" || parts[1].GetArray().GetMaxParallel() != 3 {
		t.Fatalf("got %d parts, the first %v", len(parts), parts[1].GetArray().GetItemsTotal())
	}
	next := 0
	for n, part := range parts[1:] {
		a := part.GetArray()
		if int(a.GetPart()) != n || part.GetId() != "map" || proto.Size(part) > messageBytes || len(a.GetItems())%7 != 0 && n < len(parts)-2 {
			t.Errorf("part %d: got number %d of %q, with %d items in %d bytes", n, a.GetPart(), part.GetId(), len(a.GetItems()), proto.Size(part))
		}
		for _, it := range a.GetItems() {
			if !bytes.Equal(it, whole.GetArray().GetItems()[next]) {
				t.Fatalf("item %d: got another item", next)
			}
			next++
		}
	}
	if next != 3000 {
		t.Errorf("got %d items", next)
	}
	if again := splitArrays(parts[:1]); len(again) != 1 {
		t.Errorf("got %d parts of a listed task, want 1", len(again))
	}
}

// The first part keeps fields that later versions add.
func TestTheFirstPartOfAnArrayHasAllOfItsFields(t *testing.T) {
	t.Parallel()
	whole := &dtaskv1.TaskSpec{
		Id: "map", Policy: 1, Dependencies: []uint32{0}, Conditions: []dtaskv1.Condition{dtaskv1.Condition_CONDITION_ENDED}, Body: &dtaskv1.TaskBody{Run: "x"},
		Array: &dtaskv1.ArraySpec{
			Ranges: []*dtaskv1.ArrayRange{{Last: 1}}, Items: [][]byte{[]byte("1"), []byte("2"), []byte("3")}, ItemsTotal: 3, Part: 1, MaxParallel: 3, Chunk: 7, JsonPayload: true,
		},
	}
	for _, m := range []proto.Message{whole, whole.GetArray()} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if !m.ProtoReflect().Has(fields.Get(i)) {
				t.Errorf("field %s is not set by the test", fields.Get(i).FullName())
			}
		}
	}
	want := proto.CloneOf(whole)
	want.Array.Items = want.GetArray().GetItems()[:2]
	if got := withItems(whole, whole.GetArray().GetItems()[:2]); !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(whole.GetArray().GetItems()) != 3 {
		t.Error("the job of the caller was changed")
	}
}
