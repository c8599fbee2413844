package spec

// BuiltInTypes returns the task types of every standard worker, sorted.
func BuiltInTypes() []string {
	return []string{"echo", "fail", "map", "noop", "prime", "reduce", "sleep"}
}
