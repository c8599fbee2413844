package api

import (
	"reflect"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A headerField is a field that JobHeader and Job have under the same name and with
// the same type, as indexes in the generated structs.
type headerField struct{ header, job int }

// headerFields are the fields that a job shows as they were submitted. They are set
// through the structs: protoreflect takes an allocation per field.
var headerFields = commonFields(reflect.TypeFor[dtaskv1.JobHeader](), reflect.TypeFor[dtaskv1.Job]())

// updatedField is the field of a header that an update replaces: a job shows the
// current value.
const updatedField = "Priority"

func commonFields(header, job reflect.Type) []headerField {
	var common []headerField
	for from := range header.Fields() {
		to, ok := job.FieldByName(from.Name)
		if ok && from.IsExported() && from.Type == to.Type && from.Name != updatedField {
			common = append(common, headerField{from.Index[0], to.Index[0]})
		}
	}
	return common
}

// showHeader adds what was submitted with a job. The job then shares maps and lists
// with the header: neither may be changed.
func showHeader(shown *dtaskv1.Job, h *dtaskv1.JobHeader) {
	from, to := reflect.ValueOf(h).Elem(), reflect.ValueOf(shown).Elem()
	for _, f := range headerFields {
		to.Field(f.job).Set(from.Field(f.header))
	}
}
