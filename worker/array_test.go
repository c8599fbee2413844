package worker

import (
	"encoding/json"
	"testing"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestATemplateIsExpandedForEachItem(t *testing.T) {
	t.Parallel()
	template := &dtaskv1.TaskBody{
		Command: []string{"resize", "${{ item.file }}", "${{ index }}"}, Inputs: []string{"/in/${{ item.file }}"}, Output: "/out/${{ index }}",
		Payload: []byte(`{"width":"${{ item.width }}"}`),
	}
	it := array.Item{Index: 4, JSON: []byte(`{"file":"a b.png","width":640}`)}
	body, err := expand(template, array.Scope{Item: &it}, true)
	if err != nil {
		t.Fatal(err)
	}
	if body.GetCommand()[1] != "a b.png" || body.GetCommand()[2] != "4" || body.GetInputs()[0] != "/in/a b.png" || body.GetOutput() != "/out/4" || string(body.GetPayload()) != `{"width":640}` {
		t.Errorf("got %v", body)
	}
	if template.GetCommand()[1] != "${{ item.file }}" {
		t.Error("the template was changed")
	}
	if _, err := expand(template, array.Scope{Item: &array.Item{Index: 4}}, true); err == nil {
		t.Error("an item without the field: got no error")
	}
}

func TestTheResultsOfAChunkAreAList(t *testing.T) {
	t.Parallel()
	list := []json.RawMessage{resultJSON([]byte("17")), resultJSON([]byte(`say "x"`)), resultJSON(nil), resultJSON([]byte(`{"a":1}`))}
	if got := string(combined(list)); got != `[17,"say \"x\"","",{"a":1}]` {
		t.Errorf("got %s", got)
	}
	if got := combined([]json.RawMessage{resultJSON(make([]byte, maxResult))}); got != nil {
		t.Errorf("oversized result: got %d bytes, want none", len(got))
	}
}
