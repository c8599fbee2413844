package api

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Every method that the server itself registers has a row in the table, and its request
// has the fields that the row promises.
func TestEveryMethodHasARow(t *testing.T) {
	t.Parallel()
	r := setup(t)
	served := make(map[string]protoreflect.MethodDescriptor)
	for _, file := range []protoreflect.FileDescriptor{dtaskv1.File_dtask_v1_jobs_proto, dtaskv1.File_dtask_v1_schedules_proto, dtaskv1.File_dtask_v1_queues_proto, dtaskv1.File_dtask_v1_limits_proto, dtaskv1.File_dtask_v1_cluster_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			if _, registered := r.grpc.GetServiceInfo()[string(service.FullName())]; !registered {
				continue
			}
			for k := range service.Methods().Len() {
				m := service.Methods().Get(k)
				served["/"+string(service.FullName())+"/"+string(m.Name())] = m
			}
		}
	}
	for name, d := range served {
		m, ok := methods[name]
		if !ok || m.access == 0 || m.repeat == 0 {
			t.Errorf("%s: missing or incomplete row", name)
			continue
		}
		checkRow(t, name, m, d)
	}
	for name := range methods {
		if served[name] == nil {
			t.Errorf("%s: has a row but is not served", name)
		}
	}
}

func checkRow(t *testing.T, name string, m method, d protoreflect.MethodDescriptor) {
	t.Helper()
	has := func(field protoreflect.Name) bool { return d.Input().Fields().ByName(field) != nil }
	if reads := has("consistency"); reads != (m.access == accessRead || m.access == accessFollower) {
		t.Errorf("%s: request has a consistency = %v, but access is %d", name, reads, m.access)
	}
	if keyed := m.repeat == repeatKeyed; !d.IsStreamingClient() && !strings.Contains(name, "SubmitMany") && keyed != has("idempotency_key") {
		t.Errorf("%s: request has an idempotency key = %v, keyed = %v", name, !keyed, keyed)
	}
	if (m.access == accessRead || m.access == accessFollower) && m.repeat != repeatRead {
		t.Errorf("%s: read with repetition %d", name, m.repeat)
	}
	if has("page_token") != has("limit") {
		t.Errorf("%s: a listing has both a limit and a page token", name)
	}
}

// A page token is read as it was written.
func TestPageTokensAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, token := range []pageToken{{}, {1, 0}, {1, 1}, {1<<64 - 1, 1<<32 - 1}} {
		text := token.String()
		if token.id == 0 {
			text = ""
		}
		if got, err := parsePageToken(text); err != nil || got != token {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"0", "0/1", "1/0", "1/", "/1", "01", "1/01", "-1", "1/2/3", "x", "18446744073709551616", "1/4294967296"} {
		if got, err := parsePageToken(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
