package spec

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Kinds of [dtaskv1.PlanChange].
const (
	changeAdded   = "added"
	changeRemoved = "removed"
	changeChanged = "changed"
)

// unchanging are the fields of a header that are not part of what a job does.
var unchanging = []protoreflect.Name{"name", "owner", "namespace", "policies", "needs", "run"}

// Changes returns the differences between two jobs: first those of the job's own fields,
// then by task in the order of the new job, then removed tasks by name. The defaults of
// both headers must be filled in.
func Changes(oldHeader, newHeader *dtaskv1.JobHeader, before, after []*dtaskv1.PlanTask) (list []*dtaskv1.PlanChange) {
	same := unchanging
	if oldHeader.GetRun() != nil && newHeader.GetConcurrency() == nil {
		same = append(slices.Clip(same), "concurrency") // the runs of a schedule share a key that its file need not have
	}
	if fields := differingFields(oldHeader, newHeader, same); len(fields) > 0 {
		list = append(list, &dtaskv1.PlanChange{Kind: changeChanged, Fields: fields})
	}
	former := make(map[string]*dtaskv1.PlanTask, len(before))
	for _, t := range before {
		former[t.GetId()] = t
	}
	policies := make(map[[2]uint32][]string)
	for _, t := range after {
		f := former[t.GetId()]
		if f == nil {
			list = append(list, &dtaskv1.PlanChange{Task: t.GetId(), Kind: changeAdded})
			continue
		}
		delete(former, t.GetId())
		pair := [2]uint32{f.GetPolicy(), t.GetPolicy()}
		fields, known := policies[pair]
		if !known {
			fields = differingFields(policyAt(oldHeader, pair[0]), policyAt(newHeader, pair[1]), nil)
			policies[pair] = fields
		}
		if fields = append(slices.Clip(fields), outlineFields(f, t, before, after)...); len(fields) > 0 {
			list = append(list, &dtaskv1.PlanChange{Task: t.GetId(), Kind: changeChanged, Fields: fields})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(former)) {
		list = append(list, &dtaskv1.PlanChange{Task: id, Kind: changeRemoved})
	}
	return list
}

func policyAt(h *dtaskv1.JobHeader, n uint32) *dtaskv1.TaskPolicy {
	if int64(n) >= int64(len(h.GetPolicies())) {
		return nil
	}
	return h.GetPolicies()[n]
}

// outlineFields returns what differs in two entries of outlines, without their policies.
func outlineFields(f, t *dtaskv1.PlanTask, before, after []*dtaskv1.PlanTask) (fields []string) {
	if f.GetTasks() != t.GetTasks() || f.GetMaxParallel() != t.GetMaxParallel() {
		fields = append(fields, "array")
	}
	if !slices.Equal(needsOf(f, before), needsOf(t, after)) {
		fields = append(fields, "dependencies")
	}
	if f.GetDigest() != t.GetDigest() && f.GetTasks() == t.GetTasks() {
		fields = append(fields, "body")
	}
	return fields
}

// needsOf returns the dependencies of an entry with their conditions, sorted.
func needsOf(t *dtaskv1.PlanTask, all []*dtaskv1.PlanTask) []string {
	var needs []string
	for k, of := range t.GetDependencies() {
		when := dtaskv1.Condition_CONDITION_COMPLETED
		if len(t.GetConditions()) > 0 {
			when = max(t.GetConditions()[k], when)
		}
		needs = append(needs, all[of].GetId()+" "+keywordOf(conditions, when))
	}
	slices.Sort(needs)
	return needs
}

// differingFields returns the fields in which two messages of one type differ, by their
// names in job files.
func differingFields(a, b proto.Message, except []protoreflect.Name) (names []string) {
	x, y := a.ProtoReflect(), b.ProtoReflect()
	fields := y.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !slices.Contains(except, f.Name()) && !x.Get(f).Equal(y.Get(f)) {
			names = append(names, fileName(f.Name()))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fileName returns the name in job files of a field of a message.
func fileName(field protoreflect.Name) string {
	if field == "rules" {
		return "require"
	}
	return strings.TrimSuffix(string(field), "_ms")
}
